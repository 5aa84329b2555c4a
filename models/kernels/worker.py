"""The function that computes rows of a kernel, as Numba compiles it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models.kernels.memory import Cells, Function

Worker = Callable[[Cells, Cells], Function]
"""Makes the function for rows and a cache of these cells: `worker(begin, end, stack)` computes the rows from `begin` to
`end`.
`stack` is the address of the operation's arguments, eight bytes each: the addresses of its tensors' data, then its
numbers, in the order of its schema.
"""
SIGNATURE = "void(int64, int64, int64)"


def options() -> dict[str, Any]:
    """Nothing raises. No freedom with numbers: every rounding is where the source has it."""
    return {"error_model": "numpy"}


def alone() -> dict[str, Any]:
    """Of a worker, which Python never calls."""
    return options() | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
