"""The scores of queries with keys, and the shares that their softmax makes of them."""

from __future__ import annotations

from typing import Any

from numba import njit

from models.kernels import target
from models.kernels.functions import exp, f32, tanh
from models.kernels.memory import Cells, Function, float32_at
from models.kernels.sums import dot, four_dots, highest, total
from models.kernels.tiles import four_by_four, prefetch
from models.kernels.worker import options

_AHEAD = 8
"""Keys whose memory is being read before they are needed."""
_HOLDS_MANY = target.kind().holds_many


def scorer_of(cache: Cells) -> Function:
    at, cell, write_one = cache.at, cache.size, _one_key_of(cache)

    @njit(**options())
    def write_four(asked: int, places: Any, index: int, scores: int, longest: int, rows: int, size: int) -> None:
        """Those of four keys from `index` on."""
        a, b, c, d = at(places[index]), at(places[index + 1]), at(places[index + 2]), at(places[index + 3])
        row = 0
        while row + 4 <= rows:
            here = float32_at(scores + (row * longest + index) * 4)
            four_by_four(float32_at(asked + row * size * 4), a, b, c, d, size, here, longest)
            row += 4
        while row < rows:
            here = float32_at(scores + (row * longest + index) * 4)
            here[0], here[1], here[2], here[3] = four_dots(a, b, c, d, float32_at(asked + row * size * 4), size)
            row += 1

    @njit(**options())
    def write_scores(asked: int, places: Any, length: int, scores: int, longest: int, rows: int, size: int) -> None:
        """`scores` [rows, longest] of `asked` [rows, size]."""
        index = 0
        if _HOLDS_MANY:
            while index + 4 <= length:
                for ahead in range(index + _AHEAD, index + _AHEAD + 4):
                    prefetch(places[ahead], size * cell)
                write_four(asked, places, index, scores, longest, rows, size)
                index += 4
        while index < length:
            prefetch(places[index + _AHEAD], size * cell)
            write_one(asked, places, index, scores, longest, rows, size)
            index += 1

    return write_scores


def _one_key_of(cache: Cells) -> Function:
    at = cache.at

    @njit(**options())
    def write_one(asked: int, places: Any, index: int, scores: int, longest: int, rows: int, size: int) -> None:
        key, row = at(places[index]), 0
        found = float32_at(scores + index * 4)
        while row + 4 <= rows:
            first = asked + row * size * 4
            four = four_dots(
                float32_at(first), float32_at(first + size * 4), float32_at(first + size * 8),
                float32_at(first + size * 12), key, size,
            )  # fmt: skip
            for number in range(4):
                found[(row + number) * longest] = four[number]
            row += 4
        while row < rows:
            found[row * longest] = dot(float32_at(asked + row * size * 4), key, size)
            row += 1

    return write_one


@njit(**options())
def softmax(scores: Any, count: int) -> None:
    most = highest(scores, count)
    for i in range(count):
        scores[i] = exp(scores[i] - most)
    share = f32(1.0) / total(scores, count)
    for i in range(count):
        scores[i] *= share


@njit(**options())
def write_shares(row: int, begin: int, end: int, length: int, cap: Any) -> None:
    """Of the scores from `begin` to `end` in a row of `length`; all others have none."""
    scores = float32_at(row)
    for i in range(begin):
        scores[i] = f32(0.0)
    for i in range(end, length):
        scores[i] = f32(0.0)
    if cap > f32(0.0):
        for i in range(begin, end):
            scores[i] = tanh(scores[i] / cap) * cap
    softmax(float32_at(row + begin * 4), end - begin)
