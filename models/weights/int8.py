"""Products of eight-bit integers by FBGEMM or oneDNN, which are in torch's own wheel for x86.

Weights have a scale for each output, and each row of activations has one of its own. The sums are of integers: a row's
result is the same alone and among others, and by both libraries, bit for bit. oneDNN uses AMX, where it multiplies
many rows three times as fast; a measurement at load chooses (choice.py).

A CPU without VNNI adds two products of neighbouring inputs in 16 bits, where 255 * 127 * 2 saturates. A weight's scale
therefore leaves room: two neighbours together are at most 128. So every CPU computes the same sums. It costs 0.008 in
log-likelihood (Gemma 3 270M); seven bits for all weights cost twice as much.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from models.weights.threads import computing_threads

if TYPE_CHECKING:
    Int8Weight = Any
else:
    Int8Weight = torch.classes.quantized.LinearPackedParamsBase

MOST = 127
_ENGINE = "fbgemm"
_HOPELESS = 20.0
"""Times what FBGEMM takes. What stands in for a kernel takes hundreds."""
VOCABULARY_BLOCK = 1 << 14
"""Tokens of a vocabulary whose logits are computed at once. FBGEMM writes sums twice, as integers and as numbers. Those
of 32 rows with 262,144 tokens are 32 MiB each, which the C library takes from Linux anew in each step: 22,000 page
faults, and 33 instead of 12 ms.
"""
_QUANTIZED_AT_ONCE = 1 << 18
"""Elements that are quantized at once: what a core's cache holds. Sixteen times as many take it twice as long."""


def why_not(device: torch.device) -> str | None:
    """Why there are no such products on `device`, or None."""
    if device.type != "cpu":
        return f"they are of a CPU, not of {device.type}"
    if not hasattr(torch, "_make_per_channel_quantized_tensor"):
        return "this torch has no quantized tensors"
    if _ENGINE not in torch.backends.quantized.supported_engines:
        return "this torch has no FBGEMM, which only x86 has"
    return None


def onednn_why_not() -> str | None:
    """Why oneDNN multiplies no integers here, or None: its kernels for AVX2 saturate where FBGEMM's do not, and on some
    CPUs it has none, and what stands in for them takes hundreds of times as long.
    """
    try:
        if not _agrees():
            return "its sums are others on this CPU"
        return "it has no kernel for integers on this CPU" if _is_hopeless() else None
    except (RuntimeError, AttributeError) as error:
        return str(error) or type(error).__name__


@cache
def _agrees() -> bool:
    """Both multiply weights and rows at their limits, of an even and an odd number of inputs."""
    chance = torch.Generator().manual_seed(1)
    for inputs in (64, 333):
        signs = torch.ones(inputs)
        signs[1::2] = -1.0
        weight = torch.cat([torch.ones(1, inputs), signs[None], torch.randn(256, inputs, generator=chance)])
        rows = torch.stack([torch.ones(inputs), -torch.ones(inputs), signs])
        for given in (rows[:1], rows, rows.repeat(10, 1)):
            expected = int8_product(given, [], int8_blocks(weight), None)
            if not torch.equal(int8_product(given, onednn_int8_blocks(weight), [], None), expected):
                return False
    return True


@cache
def _is_hopeless() -> bool:
    given, weight = torch.ones(32, 256), torch.ones(256, 256)
    ways: list[Callable[[], Tensor]] = [
        partial(int8_product, given, [], int8_blocks(weight), None),
        partial(int8_product, given, onednn_int8_blocks(weight), [], None),
    ]
    with computing_threads(1):  # two wait for each other where other programs are busy
        fbgemm, onednn = (min(_seconds(way) for _ in range(5)) for way in ways)
    return onednn > _HOPELESS * fbgemm


def _seconds(way: Callable[[], Tensor]) -> float:
    began = time.thread_time()
    way()
    return time.thread_time() - began


def int8_product(given: Tensor, parts: list[Tensor], eight: list[Int8Weight], bias: Tensor | None) -> Tensor:
    """`given` [rows, inputs] by the blocks of a weight, in the data type of `given`: `eight` of `int8_blocks`, or,
    where that is empty, `parts` of `onednn_int8_blocks`. Compiled by TorchScript.
    """
    rows = given.to(torch.float32)
    scale = rows.abs().amax(1, True).div_(127.0).clamp_min_(1e-32)
    quants = (rows / scale).round_()
    if len(eight) == 0:
        quants = quants.to(torch.int8)
    sums = [block_sums(quants, parts, eight, block) for block in range(block_count(parts, eight))]
    found = sums[0] if len(sums) == 1 else torch.cat(sums, 1)
    found = found.mul_(scale).to(given.dtype)
    return found if bias is None else found + bias


def block_count(parts: list[Tensor], eight: list[Int8Weight]) -> int:
    return len(parts) // 3 if len(eight) == 0 else len(eight)


def block_sums(quants: Tensor, parts: list[Tensor], eight: list[Int8Weight], block: int) -> Tensor:
    """`quants` [rows, inputs] are integers, in float32 for FBGEMM and in int8 for oneDNN; the result, in float32, lacks
    the rows' scales.
    """
    if len(eight) > 0:
        by_fbgemm: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            quants, 1.0, 128, eight[block]
        )
        return by_fbgemm
    at = 3 * block
    found: Tensor = torch.ops.onednn.qlinear_pointwise(
        quants, 1.0, 0, parts[at], parts[at + 1], parts[at + 2], None, 1.0, 0, torch.float32, "none", [], ""
    )
    return found


def int8_blocks(weight: Tensor, size: int = 0) -> list[Int8Weight]:
    """A floating-point weight [outputs, inputs] in FBGEMM's order, in blocks of `size` outputs; 0: in one."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = _ENGINE
    try:
        return [_prepacked(block) for block in weight.split(size or len(weight))]
    finally:
        torch.backends.quantized.engine = before


def onednn_int8_blocks(weight: Tensor, size: int = 0) -> list[Tensor]:
    """The same in oneDNN's order: integers, scales and zeros of each block."""
    parts = []
    for block in weight.split(size or len(weight)):
        quants, scales = _quantized(block)
        parts += [torch.ops.onednn.qlinear_prepack(quants, None), scales, _zeros(block)]
    return parts


def _prepacked(weight: Tensor) -> Int8Weight:
    quants, scales = _quantized(weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantized tensors are deprecated; their products are not
        quantized = torch._make_per_channel_quantized_tensor(quants, scales.double(), _zeros(weight), 0)  # noqa: SLF001
    return torch.ops.quantized.linear_prepack(quantized, None)


def _zeros(weight: Tensor) -> Tensor:
    return torch.zeros(len(weight), dtype=torch.int64)


def _quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Integers [outputs, inputs] and scales [outputs]. By blocks: a wide copy would be the peak of a start."""
    quants = torch.empty(weight.shape, dtype=torch.int8)
    scales = torch.empty(len(weight))
    step = max(1, _QUANTIZED_AT_ONCE // weight.shape[1])
    for first in range(0, len(weight), step):
        rows = weight[first : first + step].to(torch.float32, copy=True)
        scale = _scales(rows)
        scales[first : first + step] = scale
        quants[first : first + step] = rows.div_(scale[:, None]).round_()
    return quants, scales


def _scales(rows: Tensor) -> Tensor:
    """Scales [outputs] with which neither a weight is beyond `MOST` nor two neighbours beyond `MOST` + 1."""
    even = rows if rows.shape[1] % 2 == 0 else torch.nn.functional.pad(rows, (0, 1))
    pairs = (even[:, ::2] + even[:, 1::2]).abs_().amax(1)
    return torch.maximum(rows.abs().amax(1), pairs).clamp_min(1e-30) / MOST
