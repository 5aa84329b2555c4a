"""A linear layer in one of its forms, and its product with rows."""

# No annotations from __future__, because TorchScript reads those of `product`.

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from models.machine.torchscript import compiled
from models.weights.forms import Kind
from models.weights.int8 import Int8Weight, int8_blocks, int8_product, onednn_int8_blocks, onednn_int8_product
from models.weights.packed import packed_product, prepack


@dataclass(frozen=True, slots=True)
class Matrix:
    """`weight` [outputs, inputs] of a layer and its `bias`. Where it is `packed` or `eight`, `weight` is empty: nothing
    is kept twice. `packed` is a list of one weight, or of the integers, scales and zeros of each block of outputs;
    `eight` has a weight for each block.
    """

    weight: Tensor
    bias: Tensor | None
    packed: list[Tensor] = field(default_factory=list)
    eight: list[Int8Weight] = field(default_factory=list)

    @property
    def is_integer(self) -> bool:
        return bool(self.eight) or len(self.packed) > 1


def matrix_of(weight: Tensor, bias: Tensor | None, kind: Kind, dtype: torch.dtype, block: int = 0) -> Matrix:
    """`weight` [outputs, inputs] in the form of `kind`, to multiply rows in `dtype`. Integers are in blocks of so many
    outputs, or in one.
    """
    bias = None if bias is None else bias.to(dtype)
    if kind is Kind.PLAIN:
        return Matrix(weight.to(dtype), bias)
    empty = weight.new_empty(0)
    if kind is Kind.PACKED:
        return Matrix(empty, bias, packed=[prepack(weight.to(dtype))])
    if kind is Kind.INT8_ONEDNN:
        return Matrix(empty, bias, packed=onednn_int8_blocks(weight, block))
    return Matrix(empty, bias, eight=int8_blocks(weight, block))


def product(
    given: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    packed: list[Tensor],
    eight: list[Int8Weight],
    least: int,
    most: int,
) -> Tensor:
    """`linear(given, weight, bias)` for `given` [rows, inputs] by the parts of a `Matrix`, with `least` and `most` rows
    at once (rows.py).

    Compiled by TorchScript, which reads the types of empty lists from these annotations.
    """
    if len(eight) > 0:
        return int8_product(given, eight, bias)
    if len(packed) > 1:
        return onednn_int8_product(given, packed, bias)
    rows = given.size(0)
    if rows < least:
        more = given.expand(least, -1) if rows == 1 else pad(given, [0, 0, 0, least - rows])
        return multiplied(more, weight, bias, packed)[:rows]
    if most == 0 or rows <= most:
        return multiplied(given, weight, bias, packed)
    whole = (rows + most - 1) // most * most
    parts = [multiplied(part, weight, bias, packed) for part in pad(given, [0, 0, 0, whole - rows]).split(most)]
    return torch.cat(parts)[:rows]


def multiplied(given: Tensor, weight: Tensor, bias: Tensor | None, packed: list[Tensor]) -> Tensor:
    """All rows at once."""
    if len(packed) > 0:
        return packed_product(given, packed[0], bias)
    return linear(given, weight, bias)


def add_low_rank(found: Tensor, given: Tensor, at: Tensor, down: Tensor, up: Tensor, least: int, most: int) -> None:
    """Add to the rows `at` of `found` what two small matrices make of those of `given`; compiled by TorchScript."""
    low = product(given.index_select(0, at), down, None, [], [], least, most)
    found.index_add_(0, at, product(low, up, None, [], [], least, most).to(found.dtype))


scripted_product = compiled(product)
