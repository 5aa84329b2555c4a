"""In which form the linear layers of a model are kept, which decides what multiplies them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    PLAIN = "plain"
    PACKED = "packed"
    STORED = "stored"
    INT8 = "int8"
    INT8_ONEDNN = "int8-onednn"

    @property
    def is_integer(self) -> bool:
        """The products of both are the same, bit for bit."""
        return self in (Kind.INT8, Kind.INT8_ONEDNN)


@dataclass(frozen=True, slots=True)
class Products:
    """The forms of the layers of the decoder's blocks, and of the matrix that makes logits of its output."""

    layers: Kind = Kind.PLAIN
    vocabulary: Kind = Kind.PLAIN


PLAIN = Products()
