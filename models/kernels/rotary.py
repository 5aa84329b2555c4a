"""Queries and keys are normed and rotated where they are, and keys and values are written to the cache."""

from __future__ import annotations

from typing import Any

from numba import njit

from models.kernels.functions import f32, inverse_rms
from models.kernels.memory import Cells, Function, float32_at, float64_at, int64_at
from models.kernels.sums import dot, fma
from models.kernels.worker import SIGNATURE, alone, options

_JOINED, _QUERY_NORM, _KEY_NORM, _COS, _SIN, _NUMBERS, _KEYS, _VALUES = range(8)
_COUNT, _, _, _QUERIES, _KV, _SIZE, _IS_NORMED, _EPS = range(8, 16)


def worker_of(cells: Cells, cache: Cells) -> Function:
    at, read, write, cell = cells.at, cells.read, cells.write, cells.size
    cache_at, keep_one, kept = cache.at, cache.write, cache.size

    @njit(**options())
    def rotate(row: Any, weight: Any, scale: Any, cos: Any, sin: Any, half: int) -> None:
        for i in range(half):
            one, other = read(row, i), read(row, i + half)
            if scale != f32(0.0):
                one, other = one * scale * weight[i], other * scale * weight[i + half]
            write(row, i, fma(one, cos[i], other * sin[i]))
            write(row, i + half, fma(other, cos[i + half], one * sin[i + half]))

    @njit(**options())
    def keep(row: Any, place: Any, count: int) -> None:
        for i in range(count):
            keep_one(place, i, read(row, i))

    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        numbers, count = int64_at(values[_NUMBERS]), values[_COUNT]
        queries, kv, size = values[_QUERIES], values[_KV], values[_SIZE]
        is_normed, eps = values[_IS_NORMED], float64_at(stack)[_EPS]
        for token in range(begin, end):
            position, slot = numbers[count + token], numbers[2 * count + token]
            cos, sin = float32_at(values[_COS] + position * size * 4), float32_at(values[_SIN] + position * size * 4)
            first = values[_JOINED] + token * (queries + 2 * kv) * size * cell
            for head in range(queries + kv):
                row = at(first + head * size * cell)
                weight = float32_at(values[_QUERY_NORM] if head < queries else values[_KEY_NORM])
                scale = inverse_rms(dot(row, row, size), size, eps) if is_normed else f32(0.0)
                rotate(row, weight, scale, cos, sin, size // 2)
            wide = kv * size
            keep(at(first + queries * size * cell), cache_at(values[_KEYS] + slot * wide * kept), wide)
            keep(at(first + (queries + kv) * size * cell), cache_at(values[_VALUES] + slot * wide * kept), wide)

    return worker
