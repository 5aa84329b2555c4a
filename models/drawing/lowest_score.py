"""The lowest score of each row such that all that is above it weighs less than a limit, as one Triton kernel.

It is found bit by bit: the row is read 32 times, mostly out of a GPU's second cache.
"""

# ruff: noqa: ANN001, ANN202, N803  a Triton kernel takes no annotations but constexpr, and those are capitals

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 8192


@triton.jit
def _find_lowest(order, weights, limits, lowest, above, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    limit = tl.load(limits + row)
    low = tl.full([], -(1 << 31), tl.int64)
    heavier = tl.full([], 0.0, tl.float64)
    for step in range(32):
        middle = low + (tl.full([], 1 << 31, tl.int64) >> step) - 1
        total = tl.zeros([BLOCK], tl.float64)
        for begin in range(0, width, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            score = tl.load(order + row * width + at, mask=at < width, other=-(1 << 31)).to(tl.int64)
            weight = tl.load(weights + row * width + at, mask=at < width, other=0.0)
            total += tl.where(score > middle, weight, 0.0)
        whole = tl.sum(total, 0)
        is_heavy = whole >= limit
        low = tl.where(is_heavy, middle + 1, low)
        heavier = tl.where(is_heavy, heavier, whole)
    tl.store(lowest + row, low)
    tl.store(above + row, heavier)


def lowest_scores(order: Tensor, weights: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Those of `order` int32 [rows, n], and what is above them; `weights` and `limits` [rows, 1] are float64."""
    rows, width = order.shape
    lowest = torch.empty(rows, 1, dtype=torch.int64, device=order.device)
    above = torch.empty(rows, 1, dtype=torch.float64, device=order.device)
    kernel: Any = _find_lowest
    kernel[(rows,)](
        order, weights.contiguous(), limits.contiguous(), lowest, above, width,
        BLOCK=min(BLOCK, triton.next_power_of_2(width)), num_warps=16, enable_fp_fusion=True,
    )  # fmt: skip
    return lowest, above
