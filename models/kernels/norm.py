"""What a part of a layer adds to the hidden state, and the norm before the next part."""

from __future__ import annotations

from numba import njit

from models.kernels.functions import inverse_rms
from models.kernels.memory import Cells, Function, float32_at, float64_at, int64_at
from models.kernels.schemas import NORMED, PLAIN
from models.kernels.sums import dot, fma
from models.kernels.worker import SIGNATURE, alone

_HIDDEN, _ADDED, _POST, _WEIGHT, _NORMED, _, _, _, _SIZE, _KIND, _EPS = range(11)


def worker_of(cells: Cells, _cache: Cells) -> Function:
    at, read, write, cell = cells.at, cells.read, cells.write, cells.size

    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        post, weight = float32_at(values[_POST]), float32_at(values[_WEIGHT])
        size, kind, eps = values[_SIZE], values[_KIND], float64_at(stack)[_EPS]
        for row in range(begin, end):
            hidden = float32_at(values[_HIDDEN] + row * size * 4)
            added, normed = at(values[_ADDED] + row * size * cell), at(values[_NORMED] + row * size * cell)
            if kind == PLAIN:
                for i in range(size):
                    hidden[i] += read(added, i)
            elif kind == NORMED:
                scale = inverse_rms(dot(added, added, size), size, eps)
                for i in range(size):
                    hidden[i] = fma(read(added, i) * scale, post[i], hidden[i])
            scale = inverse_rms(dot(hidden, hidden, size), size, eps)
            for i in range(size):
                write(normed, i, hidden[i] * scale * weight[i])

    return worker
