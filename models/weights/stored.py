"""Products of a weight as its checkpoint stores it, in bfloat16 or float32, with rows of float32 by a kernel
(models/kernels/multiply.py). Other weights are widened to float32.

A second form of the weight is neither made nor kept, nothing is rounded, and each row has the same bits whatever is
beside it, on every CPU. What oneDNN packs is faster where a CPU multiplies tiles of bfloat16 (AMX), and with AVX2 for
long prompts. AVX512-BF16 gains nothing: a Xeon's core did 46 G multiplications/s by its dot products, and 91 by fused
ones of float32.
"""

# No annotations from __future__, because TorchScript reads those of `stored_product`.

import torch
from torch import Tensor

from models.kernels import library as kernels
from models.kernels.schemas import OUTPUTS_AT_ONCE

DTYPES = (torch.bfloat16, torch.float32)
_GRAIN = 1 << 18
"""Multiplications that are worth a thread."""


def why_not(dtype: torch.dtype) -> str | None:
    """Why rows of this type have no such products, or None."""
    if dtype is not torch.float32:
        return f"stored weights multiply float32, not {str(dtype).removeprefix('torch.')}"
    return kernels.load()


def stored_product(
    given: Tensor, weight: Tensor, bias: Tensor | None, at_once: int = OUTPUTS_AT_ONCE, grain: int = _GRAIN
) -> Tensor:
    """`given` [rows, inputs] by `weight` [outputs, inputs]; the result is in float32. Compiled by TorchScript."""
    rows, inputs, outputs = given.size(0), given.size(1), weight.size(0)
    found = torch.empty([rows, outputs])
    form = 1 if weight.dtype == torch.bfloat16 else 0
    torch.ops.parley.multiply(
        given, weight, found, (outputs + at_once - 1) // at_once, 1 + grain // max(1, at_once * inputs * rows), form,
        rows, inputs, outputs,
    )  # fmt: skip
    return found if bias is None else found + bias
