"""bfloat16 weights in the order in which oneDNN multiplies, once and for all.

torch lets oneDNN reorder a weight for each product of more than one row. On a CPU with AMX that is half of a decode
step: the products of a Llama of 25 million parameters take 3.1 ms for 8 rows and 3.5 for 32 with prepacked weights, 5.8
and 6.6 without. One row is not reordered, and is multiplied by the checkpoint's own weight. The copy costs as much
memory as the weights, so both together need what float32 would.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import linear

AT_MOST = 4 << 30
"""Bytes of weights that are kept twice."""
CLEARLY = 1.25
_ROWS = 8
_ROUNDS = 5


def product(given: Tensor, weight: Tensor, bias: Tensor | None, packed: list[Tensor]) -> Tensor:
    """`linear(given, weight, bias)` for `given` [rows, inputs]. `packed` holds the prepacked weight, or nothing.

    Compiled by TorchScript, which reads the type of an empty list from the operation.
    """
    if len(packed) == 0 or given.size(0) == 1:
        return linear(given, weight, bias)
    result: Tensor = torch.ops.mkldnn._linear_pointwise(given, packed[0], bias, "none", [], "")  # noqa: SLF001
    return result


def prepack(weight: Tensor) -> list[Tensor]:
    return [torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)]  # noqa: SLF001


@torch.inference_mode()
def pays(weight: Tensor, weight_bytes: int) -> bool:
    """Whether this CPU is clearly faster with prepacked weights like `weight`, by a measurement of some milliseconds.

    `weight_bytes` is the size of all weights.
    """
    if weight.device.type != "cpu" or weight.dtype is not torch.bfloat16 or weight_bytes > AT_MOST:
        return False
    given = torch.ones(_ROWS, weight.size(1), dtype=weight.dtype)
    try:
        packed = prepack(weight)
        return seconds(lambda: product(given, weight, None, [])) >= CLEARLY * seconds(
            lambda: product(given, weight, None, packed)
        )
    except (RuntimeError, AttributeError):  # a CPU or a torch without it
        return False


def seconds(work: Callable[[], object]) -> float:
    """The shortest of some rounds, after one that warms up."""
    found = []
    for _ in range(_ROUNDS + 1):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found[1:])
