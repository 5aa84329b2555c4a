"""The tensors of a GPTQ checkpoint (Frantar et al. 2022), as AutoGPTQ and GPTQModel write them.

A layer of K inputs and N outputs is stored as

    qweight  int32 [K * bits / 32, N]   quants, packed along the inputs, the first in the lowest bits
    qzeros   int32 [G, N * bits / 32]   zero points, packed along the outputs
    scales   float [G, N]
    g_idx    int32 [K]                  the group of each input

and stands for `(quant - zero) * scale`. Format v1 (`checkpoint_format: gptq`, the only one of AutoGPTQ) stores each
zero point less one, which wraps at zero; v2 stores it as it is. Symmetric quants have one zero point, the middle, and
it says which of both a layer is, whatever the checkpoint says: some programs write v2 and call it v1. With act-order
neighbouring inputs are of different groups: they are sorted by group here, once, and the layer permutes what it is
given. Bits and group size follow from the shapes, so GPTQModel's `dynamic` overrides, which differ from module to
module, need no rules of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

BITS = (4, 8)
V1, V2 = "gptq", "gptq_v2"


class QuantizationError(ValueError):
    """A checkpoint's quantization cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class Layer:
    """`quants` uint8 [N, K] and `zeros` uint8, `scales` float32 [G, N]; `order` [K] or None: input k is `order[k]`."""

    quants: Tensor
    scales: Tensor
    zeros: Tensor
    group_size: int
    bits: int
    order: Tensor | None

    def dequantized(self) -> Tensor:
        """The weight that the quants stand for: float32 [N, K], inputs in the model's own order."""
        group = torch.arange(self.quants.shape[1]) // self.group_size
        weight = (self.quants.float() - self.zeros.float()[group].T) * self.scales[group].T
        if self.order is None:
            return weight
        restored = torch.empty_like(weight)
        restored[:, self.order] = weight
        return restored


def read_layer(
    name: str,
    tensors: Mapping[str, Tensor],
    inputs: int,
    outputs: int,
    checkpoint_format: str,
    *,
    is_symmetric: bool = False,
) -> Layer:
    """The layer `name`; raises `QuantizationError` if its tensors do not fit each other, the model or its config."""
    bits = layer_bits(name, tensors["qweight"], inputs, outputs)
    scales = tensors["scales"].float()
    groups = len(scales)
    if tuple(scales.shape) != (groups, outputs) or tuple(tensors["qzeros"].shape) != (groups, outputs * bits // 32):
        shapes = ", ".join(f"{part} {tuple(tensors[part].shape)}" for part in ("qweight", "qzeros", "scales"))
        raise QuantizationError(f"{name}: its tensors do not fit together: {shapes}")
    quants = _unpack(tensors["qweight"].T, bits)
    zeros = _unpack(tensors["qzeros"], bits)
    if _format(name, zeros, bits, checkpoint_format, is_symmetric=is_symmetric) == V1:
        zeros = (zeros + 1) & (2**bits - 1)
    size, order = _groups(name, tensors.get("g_idx"), inputs, groups)
    if order is not None:
        quants = quants[:, order]
    return Layer(quants.contiguous(), scales, zeros, size, bits, order)


def _format(name: str, stored: Tensor, bits: int, checkpoint_format: str, *, is_symmetric: bool) -> str:
    middle = 2 ** (bits - 1)
    for zero, its in ((middle, V2), (middle - 1, V1)):
        if bool((stored == zero).all()):
            return its
    if is_symmetric:
        raise QuantizationError(
            f"{name}: its config says sym, whose zero points are stored as {middle} or {middle - 1}, and they are "
            f"{int(stored.min())} to {int(stored.max())}; correct sym, or quantize it again"
        )
    return checkpoint_format


def layer_bits(name: str, qweight: Tensor, inputs: int, outputs: int) -> int:
    """Bits per quant, derived from the shape."""
    bits, rest = divmod(32 * qweight.shape[0], inputs)
    if rest or qweight.shape[1] != outputs:
        raise QuantizationError(f"{name}: qweight {tuple(qweight.shape)} is not of a layer [{outputs}, {inputs}]")
    if bits not in BITS:
        raise QuantizationError(f"{name}: it has {bits} bits; 4 and 8 are read")
    return bits


def _unpack(packed: Tensor, bits: int) -> Tensor:
    """Unsigned numbers of `bits` along the last dimension: int32 [A, B] -> uint8 [A, B * 32 / bits]."""
    whole = packed.contiguous().view(torch.uint8)  # little-endian: the lowest bits are the first byte
    if bits == 8:
        return whole
    return torch.stack([whole & 15, whole >> 4], dim=-1).flatten(-2)


def _groups(name: str, g_idx: Tensor | None, inputs: int, groups: int) -> tuple[int, Tensor | None]:
    """The group size, and the order of inputs in which groups are contiguous (None: they are).

    Only the last group may be smaller.
    """
    if g_idx is None:
        if inputs % groups:
            raise QuantizationError(f"{name}: it has no g_idx, and {groups} groups do not divide {inputs} inputs")
        return inputs // groups, None
    group = g_idx.long()
    size = int((group == 0).sum())
    plain = torch.arange(inputs) // max(1, size)
    if torch.equal(group, plain) and int(plain[-1]) == groups - 1:
        return size, None
    order = torch.argsort(group, stable=True)
    if len(group) != inputs or not torch.equal(group[order], plain) or int(plain[-1]) != groups - 1:
        raise QuantizationError(f"{name}: its g_idx does not share {inputs} inputs out to {groups} groups of one size")
    return size, order
