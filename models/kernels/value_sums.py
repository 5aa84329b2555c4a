"""The sums of values, each with its share."""

from __future__ import annotations

from typing import Any

from numba import njit

from models.kernels import target
from models.kernels.memory import Cells, Function, float32_at, int64_at
from models.kernels.tiles import (
    four_add_number,
    four_add_vector,
    four_add_wide,
    one_adds_number,
    one_adds_vector,
    one_adds_wide,
)  # fmt: skip
from models.kernels.vectors import LANES
from models.kernels.worker import options

WIDE = 4 * LANES
BLOCK = 32
"""Values that are read again for all queries: these stay in a core's nearest cache."""
_HOLDS_MANY = target.kind().holds_many


def adder_of(cache: Cells) -> Function:
    add_four, add_one = _adder_to_four(cache), _adder_to_one(cache)

    @njit(**options())
    def add_values(
        sums: int, places: int, apart: int, length: int, scores: int, longest: int, rows: int, size: int
    ) -> None:
        """Values are `apart` bytes behind their keys. `sums` [rows, size] in float32."""
        for first in range(0, length, BLOCK):
            count, here, lane = min(BLOCK, length - first), int64_at(places + first * 8), 0
            while lane < size:
                width = WIDE if lane + WIDE <= size else LANES if lane + LANES <= size else 1
                row = 0
                while row < rows:
                    mine, shares = sums + row * size * 4, float32_at(scores + (row * longest + first) * 4)
                    if row + 4 <= rows:
                        add_four(mine, size, shares, longest, here, apart, count, lane, width)
                        row += 4
                    else:
                        add_one(mine, size, shares, longest, here, apart, count, lane, width)
                        row += 1
                lane += width

    return add_values


def _adder_to_four(cache: Cells) -> Function:
    at, cell = cache.at, cache.size

    @njit(**options())
    def add_four(
        sums: int, size: int, shares: Any, longest: int, places: Any, apart: int, count: int, lane: int, width: int
    ) -> None:
        """To sums of four rows."""
        row, end = at(apart), lane + width
        if _HOLDS_MANY and width == WIDE:
            four_add_wide(float32_at(sums + lane * 4), size, shares, longest, places, apart + lane * cell, row, count)
        elif width >= LANES:
            for first in range(lane, end, LANES):
                here, behind = float32_at(sums + first * 4), apart + first * cell
                four_add_vector(here, size, shares, longest, places, behind, row, count)
        else:
            four_add_number(float32_at(sums + lane * 4), size, shares, longest, places, apart + lane * cell, row, count)

    return add_four


def _adder_to_one(cache: Cells) -> Function:
    at, cell = cache.at, cache.size

    @njit(**options())
    def add_one(
        sums: int, size: int, shares: Any, longest: int, places: Any, apart: int, count: int, lane: int, width: int
    ) -> None:
        row, behind, here = at(apart), apart + lane * cell, float32_at(sums + lane * 4)
        if width == WIDE:
            one_adds_wide(here, size, shares, longest, places, behind, row, count)
        elif width == LANES:
            one_adds_vector(here, size, shares, longest, places, behind, row, count)
        else:
            one_adds_number(here, size, shares, longest, places, behind, row, count)

    return add_one
