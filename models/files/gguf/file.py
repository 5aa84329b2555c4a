"""What a GGUF file holds: keys with values, and tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.files.errors import CheckpointError, first_line

MAGIC = b"GGUF"
PLAIN = "F32"


@dataclass(frozen=True, slots=True)
class GgufFile:
    """`tensors` holds the tensors as the package `gguf` reads them, by name: still quantized, mapped from the file."""

    values: Mapping[str, Any]
    tensors: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", "unknown"))

    @property
    def is_quantized(self) -> bool:
        return any(tensor.tensor_type.name != PLAIN for tensor in self.tensors.values())

    def of_architecture(self) -> dict[str, Any]:
        """The keys that describe the architecture, without its name."""
        prefix = f"{self.architecture}."
        return {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}

    def of_tokenizer(self) -> dict[str, Any]:
        prefix = "tokenizer.ggml."
        return {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}


def read_gguf(path: Path) -> GgufFile:
    """Raises `CheckpointError` with one line for a file that is not GGUF, truncated, or one part of several."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise CheckpointError(f"{path.name} is not a GGUF file: it does not begin with {MAGIC.decode()}")
    try:
        import gguf
    except ImportError:
        raise CheckpointError("GGUF files need the package gguf: install Parley with its extra `gguf`") from None
    try:
        reader = gguf.GGUFReader(path)
        values = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, OSError) as error:
        size = path.stat().st_size
        raise CheckpointError(
            f"{path.name} has {size} bytes and is damaged or truncated ({first_line(error)}); fetch it again"
        ) from error
    if values.get("split.count", 1) > 1:
        raise CheckpointError(f"{path.name} is one part of several; join them with `llama-gguf-split --merge`")
    return GgufFile(values, tensors)


def names(values: Collection[str]) -> str:
    """The first three of them, for a message."""
    return ", ".join(sorted(values)[:3]) + (", ..." if len(values) > 3 else "")
