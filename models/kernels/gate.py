"""The MLP's gate: the activated first half of a row times its second one."""

from __future__ import annotations

from numba import njit

from models.kernels.functions import exp, f32, tanh
from models.kernels.memory import Cells, Function, int64_at
from models.kernels.sums import fma
from models.kernels.worker import SIGNATURE, alone

_GIVEN, _OUT, _, _, _, _INNER, _IS_GELU = range(7)
_SQRT_2_OVER_PI, _CUBE = 0.7978845608028654, 0.044715


def worker_of(cells: Cells, _cache: Cells) -> Function:
    at, read, write, cell = cells.at, cells.read, cells.write, cells.size

    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        inner = values[_INNER]
        for row in range(begin, end):
            gates, others = (
                at(values[_GIVEN] + row * 2 * inner * cell),
                at(values[_GIVEN] + (row * 2 + 1) * inner * cell),
            )
            out = at(values[_OUT] + row * inner * cell)
            if values[_IS_GELU]:
                for i in range(inner):
                    x = read(gates, i)
                    bent = tanh(f32(_SQRT_2_OVER_PI) * fma(f32(_CUBE) * x * x, x, x))
                    write(out, i, f32(0.5) * x * (f32(1.0) + bent) * read(others, i))
            else:
                for i in range(inner):
                    x = read(gates, i)
                    write(out, i, x / (f32(1.0) + exp(-x)) * read(others, i))

    return worker
