"""Weights in the order in which oneDNN multiplies, once and for all.

torch lets oneDNN reorder a bfloat16 weight for each product, which is half of a decode step on a CPU with AMX, and it
multiplies float32 by MKL, which is slow with few rows: the vocabulary of Gemma 3 270M takes 3 times as long for 8 rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

PACKABLE = (torch.float32, torch.bfloat16)
_ROWS = 8


def packed_product(given: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """`given` [rows, inputs] by a weight of `prepack`. Compiled by TorchScript."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(given, packed, bias, "none", [], "")  # noqa: SLF001
    return found


def prepack(weight: Tensor) -> Tensor:
    """Raises `RuntimeError` or `AttributeError` for a CPU, a data type or a torch without such products."""
    if weight.dtype not in PACKABLE:
        raise RuntimeError(f"oneDNN packs no {weight.dtype}")
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)  # noqa: SLF001
    return packed
