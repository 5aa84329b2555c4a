"""A weight in one of its forms, and its product with rows.

oneDNN packs a weight in the order in which it multiplies, once and for all: torch lets it reorder a bfloat16 weight for
each product, which is half of a decode step on a CPU with AMX, and multiplies float32 by MKL, which is slow with few
rows: the vocabulary of Gemma 3 270M takes 3 times as long for 8 rows.

MKL multiplies 4 to 64 rows by a float32 weight stored input by input 1.2 to 2.5 times faster than by one stored output
by output, which is the order of checkpoints (`column_major`). One row and hundreds of rows cost the same. Above a few
million elements, and in bfloat16, the checkpoint's order is as fast or faster. Measured with torch 2.15 on AVX-512.
"""

# No annotations from __future__, because TorchScript reads those of `product`.

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from models.machine.torchscript import compiled
from models.weights.forms import Kind
from models.weights.int8 import Int8Weight, int8_blocks, int8_product, onednn_int8_blocks
from models.weights.stored import DTYPES, stored_product

PACKABLE = (torch.float32, torch.bfloat16)
_ROWS = 8
COLUMN_MAJOR_AT_MOST = 1 << 22  # elements


class Weight(Protocol):
    """[outputs, inputs] in some form, with its bias, on one device. By `times` each row has the same bits whatever
    stands beside it, as far as that device can.
    """

    bias: Tensor | None

    @property
    def nbytes(self) -> int:
        """In the form in which it is kept."""

    def times(self, given: Tensor) -> Tensor:
        """[rows, inputs] -> [rows, outputs]"""


class Rows(NamedTuple):
    """With how many rows a product is computed: at `least` so many, and at `most`; 0: any number."""

    least: int = 1
    most: int = 0


ANY_ROWS = Rows()


@dataclass(slots=True)
class Matrix:
    """A `Weight` that scripts multiply by. `parts` is the weight, plain, packed or stored, or of oneDNN's integers
    those of `onednn_int8_blocks`; `eight` has those of FBGEMM, whose `integers` are so many. `rows` are set by rows.py.
    """

    parts: list[Tensor]
    bias: Tensor | None = None
    eight: list[Int8Weight] = field(default_factory=list)
    integers: int = 0
    rows: Rows = ANY_ROWS
    is_stored: bool = False

    @property
    def is_integer(self) -> bool:
        return len(self.parts) != 1

    @property
    def nbytes(self) -> int:
        tensors = self.parts if self.bias is None else [*self.parts, self.bias]
        return self.integers + sum(tensor.nbytes for tensor in tensors)

    @property
    def has_one_way(self) -> bool:
        """Whether the product of a row never depends on others: sums of integers are exact, and those of a kernel
        written down.
        """
        return self.is_integer or self.is_stored

    def times(self, given: Tensor) -> Tensor:
        if self.is_stored:
            return stored_product(given.contiguous(), self.parts[0], self.bias)
        found: Tensor = scripted_product(given, self.parts, self.eight, self.bias, *self.rows)
        return found


def matrix_of(weight: Tensor, bias: Tensor | None, kind: Kind, dtype: torch.dtype, block: int = 0) -> Matrix:
    """`weight` [outputs, inputs] in the form of `kind`, to multiply rows in `dtype`. Integers are in blocks of so many
    outputs, or in one.
    """
    bias = None if bias is None else bias.to(dtype)
    match kind:
        case Kind.PLAIN:
            return Matrix([weight.to(dtype)], bias)
        case Kind.PACKED:
            return Matrix([prepack(weight.to(dtype))], bias)
        case Kind.STORED:
            its = weight.dtype if weight.dtype in DTYPES else dtype
            return Matrix([weight.to(its, memory_format=torch.contiguous_format, copy=True)], bias, is_stored=True)
        case Kind.INT8_ONEDNN:
            return Matrix(onednn_int8_blocks(weight, block), bias)
        case Kind.INT8:
            return Matrix([], bias, int8_blocks(weight, block), weight.numel())


def prepack(weight: Tensor) -> Tensor:
    """Raises `RuntimeError` or `AttributeError` for a CPU, a data type or a torch without such products."""
    if weight.dtype not in PACKABLE:
        raise RuntimeError(f"oneDNN packs no {weight.dtype}")
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)  # noqa: SLF001
    return packed


def column_major(weight: Tensor) -> Tensor:
    """The same [outputs, inputs], in the fastest order in memory."""
    if weight.device.type != "cpu" or weight.dtype is not torch.float32 or weight.numel() > COLUMN_MAJOR_AT_MOST:
        return weight
    return weight.t().contiguous().t()


def product(
    given: Tensor, parts: list[Tensor], eight: list[Int8Weight], bias: Tensor | None, least: int, most: int
) -> Tensor:
    """`linear(given, weight, bias)` for `given` [rows, inputs] by the parts of a `Matrix`, with its `Rows` at once.

    Compiled by TorchScript, which reads the types of empty lists from these annotations.
    """
    if len(parts) != 1:
        return int8_product(given, parts, eight, bias)
    weight, rows = parts[0], given.size(0)
    if rows < least:
        more = given.expand(least, -1) if rows == 1 else pad(given, [0, 0, 0, least - rows])
        return multiply(more, weight, bias)[:rows]
    if most == 0 or rows <= most:
        return multiply(given, weight, bias)
    whole = (rows + most - 1) // most * most
    found = [multiply(part, weight, bias) for part in pad(given, [0, 0, 0, whole - rows]).split(most)]
    return torch.cat(found)[:rows]


def multiply(given: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """All rows at once."""
    if weight.is_mkldnn:
        packed: Tensor = torch.ops.mkldnn._linear_pointwise(given, weight, bias, "none", [], "")  # noqa: SLF001
        return packed
    return linear(given, weight, bias)


def add_low_rank(found: Tensor, given: Tensor, at: Tensor, down: Tensor, up: Tensor, least: int, most: int) -> None:
    """Add to the rows `at` of `found` what two small matrices make of those of `given`; compiled by TorchScript."""
    low = product(given.index_select(0, at), [down], [], None, least, most)
    found.index_add_(0, at, product(low, [up], [], None, least, most).to(found.dtype))


scripted_product = compiled(product)
