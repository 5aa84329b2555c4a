"""INT8 and FP8 weights for plain checkpoints: one scale per row of a weight, unquantized activations.

It uses torch only. torchao 0.18 was tried: without `torch.compile` its int8 layer took four times as long as a bfloat16
layer on a CPU (its float8 layer a hundred times), where torch's `_weight_int8pack_mm` takes two thirds.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.weights.layer import ServedLinear, plain_linear
from models.weights.replacing import put, weight_and_bias

log = logging.getLogger(__name__)
FP8 = torch.float8_e4m3fn


class WeightOnly(StrEnum):
    INT8 = "int8"
    FP8 = "fp8"


class NarrowWeight:
    """A `Weight` [N, K] in int8 or float8 (e4m3) with a scale for each output [N]: half the memory of bfloat16. A CPU
    has a kernel for int8; float8 is widened for each product, which takes longer than one of bfloat16.
    """

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None) -> None:
        self._weight, self._scale, self.bias = weight, scale, bias
        self.nbytes = sum(one.nbytes for one in (weight, scale, bias) if one is not None)

    def times(self, given: Tensor) -> Tensor:
        if self._weight.dtype is torch.int8 and given.device.type == "cpu":
            # with many rows, too, though it is slower: a row has one way of computing
            found = torch._weight_int8pack_mm(given, self._weight, self._scale)  # noqa: SLF001
        else:
            found = linear(given, self._weight.to(given.dtype)) * self._scale
        return found if self.bias is None else found + self.bias


def quantize_weights(model: Any, kind: WeightOnly) -> int:
    """Quantize the linear layers of the decoder's blocks in place; returns the number of layers.

    If the kernels are not fast, weights are rounded to what `kind` can represent and kept in the model's dtype, with a
    warning that says why: the answers are those of `kind`, the memory is not.
    """
    layers = [
        (name, module) for name, module in model.named_modules() if ".layers." in name and isinstance(module, nn.Linear)
    ]
    reason = _why_not(kind, model.device, model.dtype)
    for name, module in layers:
        put(model, name, _quantized(*weight_and_bias(module), kind, plain=reason is not None))
    if model.device.type == "cuda":
        log.warning("fp8 takes less memory than bfloat16 and more time: each product widens its weight")
    if reason:
        log.warning("%s weights have no fast kernel (%s): they take the memory of %s", kind, reason, model.dtype)
    return len(layers)


def _why_not(kind: WeightOnly, device: torch.device, dtype: torch.dtype) -> str | None:
    if kind is WeightOnly.FP8:
        return None if device.type == "cuda" else f"a {device.type} has none for float8"
    if dtype != torch.bfloat16:
        return f"the int8 kernel is fast in bfloat16 only, and the model runs in {str(dtype).removeprefix('torch.')}"
    return None


def _quantized(weight: Tensor, bias: Tensor | None, kind: WeightOnly, *, plain: bool) -> nn.Module:
    most = 127.0 if kind is WeightOnly.INT8 else torch.finfo(FP8).max
    scale = weight.float().abs().amax(1).clamp_min(1e-12) / most
    scaled = weight.float() / scale[:, None]
    quants = scaled.round().to(torch.int8) if kind is WeightOnly.INT8 else scaled.to(FP8)
    if plain:
        return plain_linear((quants.float() * scale[:, None]).to(weight.dtype), bias)
    return ServedLinear(NarrowWeight(quants, scale.to(weight.dtype), bias), weight.shape[1], weight.shape[0])
