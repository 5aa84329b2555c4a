"""Loading a model: by the name `demo`, a folder, or a Hugging Face name; safetensors only, no code of the checkpoint.

A checkpoint that cannot be served right is refused here with one line, because a worker that starts with it would
answer nonsense for as long as nobody reads it. `model_version` names the bytes that answer: resumed answers compare it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from models.architectures import context_limit, why_unsupported
from models.generation import GenerationDefaults
from models.unimported import unimported

# A quarter of a worker's start, for one function of transformers that nothing here calls.
with unimported("sklearn"):
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

DEMO = Path(__file__).parent / "demo" / "checkpoint"
FILES = ("*.json", "*.safetensors", "*.jinja", "*.model")
VERSIONED = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
BLOCK, BLOCKS = 1 << 20, 64
FLOAT32_AT_MOST = 4 << 30  # bytes of weights that are still widened to float32 on a CPU

# What the libraries raise for a checkpoint that is absent or broken; nothing else is caught.
LOAD_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError, SafetensorError)


class CheckpointError(Exception):
    """A model cannot be loaded or cannot be served right; the message is one line."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model in memory with what belongs to it."""

    name: str
    model: Any
    tokenizer: Any
    defaults: GenerationDefaults
    eos: frozenset[int]
    model_version: str
    context_length: int


def load_checkpoint(name: str, *, device: str = "auto", dtype: str = "auto", context_length: int = 0) -> Checkpoint:
    """Load `name`; raises `CheckpointError` with one line that says what is wrong."""
    folder = _folder(name)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except LOAD_ERRORS as error:
        raise CheckpointError(f"model {name}: its config cannot be read: {_line(error)}") from error
    if reason := why_unsupported(config):
        raise CheckpointError(f"model {name}: {reason}")
    place = _device(device)
    try:
        model = _load_model(folder, _dtype(dtype, place, folder)).to(place).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except CheckpointError as error:
        raise CheckpointError(f"model {name}: {error}") from None
    except LOAD_ERRORS as error:
        raise CheckpointError(f"model {name}: cannot be loaded: {_line(error)}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(f"model {name}: it has no tokenizer.json; convert its tokenizer first")
    generation = _generation(folder)
    return Checkpoint(
        name=name,
        model=model.requires_grad_(requires_grad=False),
        tokenizer=tokenizer,
        defaults=_defaults(generation),
        eos=_eos(generation, config, tokenizer),
        model_version=f"{_short(name)}@{_fingerprint(folder)}",
        context_length=_context(name, config, context_length),
    )


def _folder(name: str) -> Path:
    if name == "demo":
        folder = DEMO
    elif Path(name).is_dir():
        folder = Path(name)
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise CheckpointError(f"model {name}: there is no such folder")
    else:
        folder = _fetch(name)
    if not any(folder.glob("*.safetensors")):
        raise CheckpointError(f"model {name}: no *.safetensors in {folder}; other weight formats are not read")
    return folder


def _fetch(name: str) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415  only a name that is not a folder needs it

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"model {name}: no folder, and Hugging Face gave none: {_line(error)}") from error


def _load_model(folder: Path, dtype: torch.dtype) -> Any:
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, use_safetensors=True, trust_remote_code=False, output_loading_info=True
    )
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        if broken := sorted(str(key) for key in info.get(kind) or ()):
            # transformers would go on with random numbers in their place
            raise CheckpointError(f"broken checkpoint: {kind.replace('_', ' ')} {', '.join(broken[:3])}")
    return model


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise CheckpointError(f"device {device} cannot be used: {_line(error)}") from error
    return place


def _dtype(dtype: str, device: torch.device, folder: Path) -> torch.dtype:
    if dtype != "auto":
        return getattr(torch, dtype)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return torch.float32 if device.type == "cpu" and size <= FLOAT32_AT_MOST else torch.bfloat16


def _generation(folder: Path) -> Any:
    if not (folder / "generation_config.json").is_file():
        return GenerationConfig()
    return GenerationConfig.from_pretrained(folder)


def _defaults(generation: Any) -> GenerationDefaults:
    if generation.do_sample is False:
        return GenerationDefaults(temperature=0.0)

    def pick(name: str, fallback: float) -> float:
        value = getattr(generation, name, None)
        return fallback if value is None else value

    return GenerationDefaults(pick("temperature", 1.0), pick("top_p", 1.0), int(pick("top_k", 0)))


def _eos(generation: Any, config: Any, tokenizer: Any) -> frozenset[int]:
    found: set[int] = set()
    for value in (generation.eos_token_id, getattr(config, "eos_token_id", None), tokenizer.eos_token_id):
        found.update(value if isinstance(value, list) else [] if value is None else [value])
    return frozenset(found)


def _context(name: str, config: Any, wanted: int) -> int:
    limit = context_limit(config)
    if wanted > limit:
        raise CheckpointError(f"model {name}: context_length={wanted}, but the model has {limit}")
    return wanted or limit


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in (*sorted(folder.glob("*.safetensors")), *(folder / name for name in VERSIONED)):
        if path.is_file():
            digest.update(f"{path.name}:{path.stat().st_size}\n".encode())
            for block in _blocks(path):
                digest.update(block)
    return digest.hexdigest()[:12]


def _blocks(path: Path) -> Iterator[bytes]:
    """All of a file of up to 64 MiB, evenly spaced samples of a larger one: a start must not read an 8B model twice."""
    size = path.stat().st_size
    stride = max(BLOCK, size // BLOCKS)
    with path.open("rb") as file:
        for offset in range(0, size, stride):
            file.seek(offset)
            yield file.read(BLOCK)


def _short(name: str) -> str:
    return Path(os.fspath(name)).name or name


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
