"""The data type in which this CPU computes the weights of a bfloat16 checkpoint.

Some processors multiply bfloat16 twice as fast as float32, others slower, and no flag of a processor tells: of two with
AVX512-BF16, one was 0.8 times as fast and one 2.3 times. So it is measured when a checkpoint is loaded, with the
products of a decode step of 1, 8 and 32 answers, prepacked where that pays (prepacked.py). Small weights stay float32
without a measurement.

float32 also stays unless bfloat16 is `CLEARLY` faster, so that machines of one kind come to the same result.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from models.prepacked import pays, prepack, product, seconds

ROWS = (1, 8, 32)
CLEARLY = 1.25
SMALL = 16 << 20
"""Bytes of weights. Steps of smaller models take their time between the products."""


def faster_dtype(config: Any, weight_bytes: int) -> torch.dtype:
    """float32 or bfloat16 for a checkpoint in bfloat16, whose `config` is one of transformers. Takes up to a second."""
    text = config.get_text_config()
    hidden, inner = getattr(text, "hidden_size", 0), getattr(text, "intermediate_size", 0)
    if weight_bytes < SMALL or not hidden or not inner:
        return torch.float32
    return torch.bfloat16 if speedup_of_bfloat16(hidden, inner) >= CLEARLY else torch.float32


@torch.inference_mode()
def speedup_of_bfloat16(hidden: int, inner: int) -> float:
    """How many times as fast as in float32 the products of an MLP are: the geometric mean over `ROWS`."""
    ratios = []
    weights = {dtype: _mlp(hidden, inner, dtype) for dtype in (torch.float32, torch.bfloat16)}
    prepacks = pays(weights[torch.bfloat16][0], 0)
    for rows in ROWS:
        full, half = (
            _seconds(torch.ones(rows, hidden, dtype=dtype), *of_dtype, prepacks=prepacks and dtype is torch.bfloat16)
            for dtype, of_dtype in weights.items()
        )
        ratios.append(full / half)
    return math.prod(ratios) ** (1 / len(ratios))


def _mlp(hidden: int, inner: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.full((inner, hidden), 0.01, dtype=dtype), torch.full((hidden, inner), 0.01, dtype=dtype)


def _seconds(values: Tensor, up: Tensor, down: Tensor, *, prepacks: bool) -> float:
    packed = [prepack(weight) if prepacks else [] for weight in (up, down)]
    return seconds(lambda: product(product(values, up, None, packed[0]), down, None, packed[1]))
