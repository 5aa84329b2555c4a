"""A token drawn from those that top_k, top_p and min_p keep, without sorting the vocabulary.

Filters keep some of the likeliest tokens; of two with one score, the lower token counts as the likelier one. So a
token is drawn from all. If it is not kept, no less likely token is, and the next one is drawn from those that are
likelier. Whether a token is kept is known by how many are likelier, and by their mass: powers of scores over the
largest one's. A draw succeeds with the probability of what is kept, and each that does not leaves half on average.
"""

from __future__ import annotations

import math
from typing import Any

from numba import njit, types

from models.kernels.functions import exp, f32, i32, u32
from models.kernels.memory import Cells, Function, bits_of, float_of
from models.kernels.noise import NEAR, exact_noise, hashed, near_noise
from models.kernels.sums import highest, total
from models.kernels.worker import options

f64, i64 = types.float64, types.int64
BLOCK = 1024
"""Scores that are read together. `tops` are the largest ones of each block, before the temperature."""
_ROUNDING = 1e-6
"""Of a score with noise, as a share."""
_NEAREST, _FARTHEST, _ENDLESS = 2.0, 64.0, 1e30
_DISTANCE_SLACK = 1e-3


@njit(inline="always")
def is_likelier(score: Any, token: int, than: Any, end: int) -> Any:
    """Than the token `end` with the score `than`."""
    return score > than or (score == than and token < end)


@njit(inline="always")
def ordered(score: Any) -> Any:
    """An integer in the order of scores."""
    bits = i32(bits_of(score + f32(0.0)))
    return bits ^ i32(0x7FFFFFFF) if bits < i32(0) else bits


@njit(**options())
def score_of(order: int) -> Any:
    return float_of(u32(i32(order ^ 0x7FFFFFFF if order < 0 else order)))


@njit(**options())
def largest_but(kept: Any, many: int, limit: int) -> Any:
    """The score that is number `limit` among `many`, the largest being number 1."""
    low, high = i64(ordered(f32(-math.inf))), i64(ordered(f32(math.inf)))
    while low < high:
        middle = (low + high + 1) >> 1
        least, found = score_of(middle), 0
        for i in range(many):
            found += 1 if kept[i] >= least else 0
        if found >= limit:
            low = middle
        else:
            high = middle - 1
    return score_of(low)


@njit(**options())
def mass_of_largest(kept: Any, many: int, limit: int, least: Any, most: Any) -> Any:
    """Of the `limit` largest scores, the last of which is `least`."""
    mass, above = 0.0, 0
    for i in range(many):
        if kept[i] > least:
            mass += math.exp(f64(kept[i]) - f64(most))
            above += 1
    return mass + (limit - above) * math.exp(f64(least) - f64(most))


def draw_of(cells: Cells) -> Function:
    at, read, cell = cells.at, cells.read, cells.size

    @njit(**options())
    def drawn(
        scores: int, width: int, temperature: Any, least: Any, end: int, one: int, other: int, block: Any, tops: Any
    ) -> int:
        """The token of the largest score with noise, or -1 if there is none. Scores are above `least`, or equal to it,
        with tokens before `end`.
        """
        best, token = f32(-math.inf), -1
        for first in range(0, width, BLOCK):
            if tops[first // BLOCK] / temperature < least:
                continue
            count, row = min(BLOCK, width - first), at(scores + first * cell)
            for i in range(count):
                score = read(row, i) / temperature
                near = score + near_noise(hashed(first + i, one, other))
                block[i] = near if is_likelier(score, first + i, least, end) else f32(-math.inf)
            top = highest(block, count)
            slack = f32(NEAR) + f32(_ROUNDING) * abs(top)
            enough = max(best - slack, top - slack - slack)
            if top > f32(-math.inf) and top >= enough:
                for i in range(count):
                    if block[i] >= enough:
                        found = read(row, i) / temperature + exact_noise(hashed(first + i, one, other))
                        if found > best:
                            best, token = found, first + i
        return token

    return drawn


def filter_of(cells: Cells) -> Function:
    at, read, cell = cells.at, cells.read, cells.size
    drawn, first_of, likelier_of = draw_of(cells), _first_of(cells), _likelier_of(cells)
    limit_of = _limit_of(cells)

    @njit(**options())
    def filtered(
        scores: int, width: int, temperature: Any, likeliest: int, limit: int, top_p: Any, min_p: Any, one: int,
        other: int, kept: Any, block: Any, tops: Any,
    ) -> int:  # fmt: skip
        """The token of the largest score with noise among those that the filters keep."""
        most = read(at(scores + likeliest * cell), 0) / temperature
        likeliest = first_of(scores, width, temperature, most, likeliest, tops)
        least, mass = f32(-math.inf), 1.0
        if limit < width:
            least, mass = limit_of(scores, width, temperature, most, limit, kept, tops)
        elif top_p < f32(1.0):
            _, mass = likelier_of(scores, width, temperature, most, f32(-_ENDLESS), width, block, tops)
        if min_p > f32(0.0):
            distance = f32(max(-math.log(f64(min_p)), 0.0) + _DISTANCE_SLACK)
            least = max(least, most - distance)
        end = width
        while True:
            token = drawn(scores, width, temperature, least, end, one, other, block, tops)
            if token in (likeliest, -1):
                return likeliest
            score = read(at(scores + token * cell), 0) / temperature
            is_kept = math.exp(f64(score) - f64(most)) >= f64(min_p)
            if is_kept and (limit < width or top_p < f32(1.0)):
                many, above = likelier_of(scores, width, temperature, most, score, token, block, tops)
                is_kept = many < limit and (top_p >= f32(1.0) or above < f64(top_p) * mass)
            if is_kept:
                return token
            least, end = score, token

    return filtered


def _first_of(cells: Cells) -> Function:
    at, read, cell = cells.at, cells.read, cells.size

    @njit(**options())
    def first_of(scores: int, width: int, temperature: Any, most: Any, likeliest: int, tops: Any) -> int:
        """The first token with the score `most`: a temperature may make two scores equal."""
        for first in range(0, likeliest, BLOCK):
            if tops[first // BLOCK] / temperature == most:
                row = at(scores + first * cell)
                for i in range(min(BLOCK, width - first)):
                    if read(row, i) / temperature == most:
                        return first + i
        return likeliest

    return first_of


def _likelier_of(cells: Cells) -> Function:
    at, read, cell = cells.at, cells.read, cells.size

    @njit(**options())
    def likelier_of(
        scores: int, width: int, temperature: Any, most: Any, least: Any, token: int, block: Any, tops: Any
    ) -> Any:
        """How many tokens are likelier than `token`, whose score is `least`, and their mass."""
        many, mass = 0, 0.0
        for first in range(0, width, BLOCK):
            if tops[first // BLOCK] / temperature < least:
                continue
            count, row = min(BLOCK, width - first), at(scores + first * cell)
            for i in range(count):
                score = read(row, i) / temperature
                is_above = is_likelier(score, first + i, least, token)
                many += 1 if is_above else 0
                block[i] = exp(score - most) if is_above else f32(0.0)
            mass += f64(total(block, count))
        return many, mass

    return likelier_of


def _limit_of(cells: Cells) -> Function:
    at, read, cell = cells.at, cells.read, cells.size

    @njit(**options())
    def collect(scores: int, width: int, temperature: Any, least: Any, kept: Any, tops: Any) -> int:
        """Put all scores from `least` on into `kept`; returns how many."""
        many = 0
        for first in range(0, width, BLOCK):
            if tops[first // BLOCK] / temperature >= least:
                row = at(scores + first * cell)
                for i in range(min(BLOCK, width - first)):
                    score = read(row, i) / temperature
                    kept[many] = score
                    many += 1 if score >= least else 0
        return many

    @njit(**options())
    def limit_of(scores: int, width: int, temperature: Any, most: Any, limit: int, kept: Any, tops: Any) -> Any:
        """The score of number `limit`, and the mass of so many tokens."""
        distance, many = f32(_NEAREST), 0
        while many < limit and not math.isinf(distance):
            many = collect(scores, width, temperature, most - distance, kept, tops)
            distance = distance * f32(2.0) if distance < f32(_FARTHEST) else f32(math.inf)
        if many < limit:
            many = collect(scores, width, temperature, f32(-math.inf), kept, tops)
        least = largest_but(kept, many, min(limit, many))
        return least, mass_of_largest(kept, many, limit, least, most)

    return limit_of
