"""The files of a checkpoint: where they are, whether they are complete, and a version of their bytes.

Weights are read from safetensors and GGUF only, because reading a pickle runs code. Each file's length is compared
with its header first, because an interrupted download is the most frequent fault.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.files.digests import digest
from models.files.errors import CheckpointError, first_line

DEMO = Path(__file__).parents[1] / "demo" / "checkpoint"
PATTERNS = ("*.json", "*.safetensors", "*.jinja", "*.model")
CODE = "*.py"
GGUF = ".gguf"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
VERSIONED = (
    *("config.json", "quantize_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("chat_template.jinja", "generation_config.json"),
)
LONGEST_HEADER = 100_000_000  # bytes, the format's own limit
_PATHS = (".", "/", "~")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """A checkpoint on this machine. `version` is its base and revision: the Hub's commit, or a digest of its bytes."""

    folder: Path
    version: str

    @classmethod
    def find(cls, name: str, *, remote_code: bool = False) -> CheckpointFiles:
        """The files of `name`: `demo`, a folder, a GGUF file, or a Hugging Face name, optionally with `@revision`."""
        folder = _folder(name, remote_code)
        _check(name, folder)
        if not remote_code:
            _check_code(name, folder)
        base = Path(name).name if folder == Path(name) else Path(name.partition("@")[0]).name
        revision = folder.name[:12] if _COMMIT.fullmatch(folder.name) else digest(_versioned(folder))
        return cls(folder, f"{base or name}@{revision}")

    @property
    def weight_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.glob("*.safetensors"))


def is_folder(name: str) -> bool:
    """Whether the name of a model says where its files are on this machine, and not only what it is called."""
    if name.endswith(GGUF) or name.startswith(_PATHS) or name.count("/") > 1:
        return True
    return "/" in name and Path(name).is_dir()


def check_folder(name: str) -> None:
    """Raise `CheckpointError` if `name` can only be a folder or a file and does not exist, or is a folder without whole
    weights; fast.
    """
    if name.endswith(GGUF):
        if not Path(name).is_file():
            raise CheckpointError(f"model {name}: there is no such file")
        return
    if (name.startswith(_PATHS) or name.count("/") > 1) and not Path(name).is_dir():
        raise CheckpointError(f"model {name}: there is no such folder")
    if Path(name).is_dir():
        _check(name, Path(name))


def _folder(name: str, remote_code: bool) -> Path:
    if name == "demo":
        return DEMO
    if Path(name).is_dir():
        return Path(name)
    check_folder(name)
    if name.endswith(GGUF):
        from models.files.gguf import convert_gguf

        try:
            return convert_gguf(Path(name))
        except CheckpointError as error:
            raise CheckpointError(f"model {name}: {error}") from error
    from huggingface_hub import snapshot_download  # only a name that is not a folder needs it

    repository, _, revision = name.partition("@")
    wanted = [*PATTERNS, CODE] if remote_code else list(PATTERNS)
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=wanted))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"model {name}: not a folder, and Hugging Face returned: {first_line(error)}") from error


def _check(name: str, folder: Path) -> None:
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        pickle = next((path.name for kind in PICKLES for path in sorted(folder.glob(kind))), None)
        why = f"{pickle} is a pickle, which runs code when it is read" if pickle else "other formats are not read"
        raise CheckpointError(f"model {name}: no *.safetensors in {folder}; {why}")
    for path in weights:
        if fault := _fault(path):
            raise CheckpointError(f"model {name}: {path.name} {fault}; fetch it again")
    for index in folder.glob("*.safetensors.index.json"):
        try:
            listed: dict[str, str] = json.loads(index.read_text())["weight_map"]
            shards = set(listed.values())
        except (ValueError, KeyError, AttributeError, TypeError):
            raise CheckpointError(f"model {name}: {index.name} is not an index of weights; fetch it again") from None
        if absent := sorted(str(shard) for shard in shards if not (folder / str(shard)).is_file()):
            raise CheckpointError(f"model {name}: {absent[0]}, which {index.name} lists, is missing; fetch it again")
        if (wrong := _disagreement(folder, listed)) is not None:
            raise CheckpointError(f"model {name}: {wrong}; {index.name} is of other files: fetch all of them again")


def _disagreement(folder: Path, listed: Mapping[str, str]) -> str | None:
    """Where the shards do not have the tensors that an index lists, each once."""
    found: dict[str, str] = {}
    for shard in sorted(set(listed.values())):
        for tensor in _tensors(folder / shard):
            if tensor in found:
                return f"{tensor} is in both {found[tensor]} and {shard}"
            found[tensor] = shard
    wrong = next((one for one, shard in listed.items() if found.get(one) != shard), None)
    return None if wrong is None else f"{wrong} is not in {listed[wrong]}"


def _tensors(path: Path) -> list[str]:
    with path.open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    return [name for name in header if name != "__metadata__"]


def _fault(path: Path) -> str | None:
    """What is wrong with a safetensors file: 8 bytes of length, a JSON header, and the tensors that it lists."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= min(size, LONGEST_HEADER):
            return f"is not a safetensors file, or truncated: {size} bytes"
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
            whole = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, IndexError, AttributeError, TypeError):
            return f"is not a safetensors file, or truncated: {size} bytes, and its header cannot be read"
    return None if size == whole else f"has {size} bytes, but its header describes {whole}"


def _check_code(name: str, folder: Path) -> None:
    """Reject a checkpoint that needs code of its own, before transformers asks about it interactively."""
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return  # the function that reads it next reports the error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if isinstance(config, dict) and "auto_map" in config:
        from transformers import CONFIG_MAPPING

        if kind not in CONFIG_MAPPING:
            raise CheckpointError(
                f"model {name}: {kind} contains code of its own, which is not run unless you trust it: "
                "trust_remote_code=true"
            )


def _versioned(folder: Path) -> list[Path]:
    paths = (*sorted(folder.glob("*.safetensors")), *(folder / name for name in VERSIONED))
    return [path for path in paths if path.is_file()]
