"""Products of eight-bit integers by FBGEMM, which is in torch's own wheel for x86.

Weights have a scale for each output. Each row of activations is divided by its own largest magnitude first, so one
scale fits every row of every batch. The sums are of integers: a row's result is the same alone and among others, bit
for bit.

A CPU without VNNI adds two products of neighbouring inputs in 16 bits, where 255 * 127 * 2 saturates. A weight's scale
therefore leaves room: two neighbours together are at most 128. So every CPU computes the same sums. It costs 0.008 in
log-likelihood (Gemma 3 270M); seven bits for all weights cost twice as much.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.torchscript import compiled

if TYPE_CHECKING:
    Int8Weight = Any
else:
    Int8Weight = torch.classes.quantized.LinearPackedParamsBase

MOST = 127
_ENGINE = "fbgemm"
_BLOCK = 1 << 22
"""Elements that are quantized at once."""


def why_not(device: torch.device) -> str | None:
    """Why there are no such products on `device`, or None."""
    if device.type != "cpu":
        return f"they are of a CPU, not of {device.type}"
    if not hasattr(torch, "_make_per_channel_quantized_tensor"):
        return "this torch has no quantized tensors"
    if _ENGINE not in torch.backends.quantized.supported_engines:
        return "this torch has no FBGEMM, which only x86 has"
    return None


def int8_product(given: Tensor, weight: Int8Weight, bias: Tensor | None) -> Tensor:
    """`given` [rows, inputs] by a weight of `int8_weight`, in the data type of `given`. Compiled by TorchScript."""
    rows = given.to(torch.float32)
    most = rows.abs().amax(1, True).clamp_min_(1e-30)
    found = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        rows / most, 0.007874015748031496, 128, weight
    )
    found = found.mul_(most).to(given.dtype)
    return found if bias is None else found + bias


scripted_int8_product = compiled(int8_product)


def int8_weight(weight: Tensor) -> Int8Weight:
    """A floating-point weight [outputs, inputs] in FBGEMM's order."""
    quants = torch.empty(weight.shape, dtype=torch.int8)
    scales = torch.empty(len(weight))
    step = max(1, _BLOCK // weight.shape[1])
    for first in range(0, len(weight), step):
        rows = weight[first : first + step].float()
        scale = _scales(rows)
        scales[first : first + step] = scale
        quants[first : first + step] = torch.round(rows / scale[:, None]).to(torch.int8)
    zeros = torch.zeros(len(weight), dtype=torch.int64)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = _ENGINE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # quantized tensors are deprecated; their products are not
            quantized = torch._make_per_channel_quantized_tensor(quants, scales.double(), zeros, 0)  # noqa: SLF001
        return torch.ops.quantized.linear_prepack(quantized, None)
    finally:
        torch.backends.quantized.engine = before


def _scales(rows: Tensor) -> Tensor:
    """Scales [outputs] with which neither a weight is beyond `MOST` nor two neighbours beyond `MOST` + 1."""
    even = rows if rows.shape[1] % 2 == 0 else torch.nn.functional.pad(rows, (0, 1))
    pairs = even.view(len(rows), -1, 2).sum(2).abs().amax(1)
    return torch.maximum(rows.abs().amax(1), pairs).clamp_min(1e-30) / MOST
