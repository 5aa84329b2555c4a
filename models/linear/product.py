"""A linear layer in one of its forms, and its product with rows."""

# No annotations from __future__, because TorchScript reads those of `product`.

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import linear

from models.linear.int8 import Int8Weight, int8_blocks, int8_product, onednn_int8_blocks, onednn_int8_product
from models.linear.kinds import Kind
from models.linear.packed import packed_product, prepack
from models.torchscript import compiled


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
    given: Tensor, weight: Tensor, bias: Tensor | None, packed: list[Tensor], eight: list[Int8Weight]
) -> Tensor:
    """`linear(given, weight, bias)` for `given` [rows, inputs] by the parts of a `Matrix`.

    Compiled by TorchScript, which reads the types of empty lists from these annotations.
    """
    if len(eight) > 0:
        return int8_product(given, eight, bias)
    if len(packed) > 1:
        return onednn_int8_product(given, packed, bias)
    if len(packed) > 0:
        return packed_product(given, packed[0], bias)
    return linear(given, weight, bias)


scripted_product = compiled(product)
