"""Products of rows of float32 with a weight as a checkpoint stores it, in bfloat16 or float32.

A lone row takes as long as memory needs to bring the weight. Each product is added in the order of `dot` (sums.py),
whatever is computed with it, so a row has the same bits alone and among others, on every CPU.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from models.kernels import target
from models.kernels.lanes import TILE, add_first, add_last, add_next, add_whole, widen
from models.kernels.memory import Cells, Function, allocate, float32_at, int64_at, release
from models.kernels.schemas import OUTPUTS_AT_ONCE
from models.kernels.sums import dot, four_dots
from models.kernels.tiles import four_by_streamed, one_by_four, three_by_four, two_by_four
from models.kernels.vectors import FOUR, LANES
from models.kernels.worker import SIGNATURE, alone, options

_GIVEN, _WEIGHT, _OUT, _, _, _, _TOKENS, _INPUTS, _OUTPUTS = range(9)
_HOLDS_MANY = target.kind().holds_many
_MANY = 12
"""From so many rows on, a weight is widened once for all of them."""
_ROWS = 32
"""So many rows at most: their lanes stay in a core's second cache."""
_PART = 768
"""Inputs: four rows of them and four of the weight stay in its nearest cache."""


def worker_of(cells: Cells, _cache: Cells) -> Function:
    write_few, write_many = _writer_of_few(cells), _writer_of_many(cells)
    at, cell = cells.at, cells.size

    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        tokens, inputs, outputs = values[_TOKENS], values[_INPUTS], values[_OUTPUTS]
        space = allocate(FOUR * _PART * 4 + OUTPUTS_AT_ONCE // FOUR * _ROWS // FOUR * TILE)
        for block in range(begin, end):
            first = block * OUTPUTS_AT_ONCE
            count = min(OUTPUTS_AT_ONCE, outputs - first)
            weight, whole = values[_WEIGHT] + first * inputs * cell, count // FOUR * FOUR
            row = 0
            while row < tokens:
                given, out = values[_GIVEN] + row * inputs * 4, values[_OUT] + (row * outputs + first) * 4
                rows = min(_ROWS, tokens - row) // FOUR * FOUR
                if rows >= _MANY and inputs % LANES == 0:
                    write_many(given, weight, out, rows, inputs, outputs, whole, space)
                else:
                    rows = min(_ROWS, tokens - row)
                    write_few(given, weight, out, rows, inputs, outputs, whole)
                for output in range(whole, count):
                    found = float32_at(out + output * 4)
                    for one in range(rows):
                        key = at(weight + output * inputs * cell)
                        found[one * outputs] = dot(float32_at(given + one * inputs * 4), key, inputs)
                row += rows
        release(space)

    return worker


def _writer_of_few(cells: Cells) -> Function:
    at, cell = cells.at, cells.size
    write_rows = _write_rows if _HOLDS_MANY else _write_rows_by_small_tiles

    @njit(**options())
    def write_few(given: int, weight: int, out: int, rows: int, inputs: int, outputs: int, count: int) -> None:
        """`count` outputs, which four divides."""
        for output in range(0, count, FOUR):
            keys, step = weight + output * inputs * cell, inputs * cell
            a, b, c, d = at(keys), at(keys + step), at(keys + 2 * step), at(keys + 3 * step)
            write_rows(given, a, b, c, d, out + output * 4, rows, inputs, outputs)

    return write_few


@njit(**options())
def _write_rows(given: int, a: Any, b: Any, c: Any, d: Any, out: int, rows: int, inputs: int, outputs: int) -> None:
    for row in range(0, rows, FOUR):
        asked, found = float32_at(given + row * inputs * 4), float32_at(out + row * outputs * 4)
        if row + FOUR <= rows:
            four_by_streamed(asked, a, b, c, d, inputs, found, outputs)
        elif row + 3 == rows:
            three_by_four(asked, a, b, c, d, inputs, found, outputs)
        elif row + 2 == rows:
            two_by_four(asked, a, b, c, d, inputs, found, outputs)
        else:
            one_by_four(asked, a, b, c, d, inputs, found, outputs)


@njit(**options())
def _write_rows_by_small_tiles(
    given: int, a: Any, b: Any, c: Any, d: Any, out: int, rows: int, inputs: int, outputs: int
) -> None:
    """Where a CPU holds the lanes of four sums and little more."""
    row, step = 0, inputs * 4
    while row < rows:
        asked, found = given + row * step, float32_at(out + row * outputs * 4)
        if row + FOUR <= rows:
            one, two, three, four = (
                float32_at(asked), float32_at(asked + step), float32_at(asked + 2 * step), float32_at(asked + 3 * step)
            )  # fmt: skip
            for number, key in enumerate((a, b, c, d)):
                sums = four_dots(one, two, three, four, key, inputs)
                for each in range(FOUR):
                    found[each * outputs + number] = sums[each]
            row += FOUR
        else:
            one_by_four(float32_at(asked), a, b, c, d, inputs, found, outputs)
            row += 1


def _writer_of_many(cells: Cells) -> Function:
    at, cell = cells.at, cells.size

    @njit(**options())
    def write_many(
        given: int, weight: int, out: int, rows: int, inputs: int, outputs: int, count: int, space: int
    ) -> None:
        """Of `rows` and `count` outputs, both of which four divides."""
        wide, parts = float32_at(space), (inputs + _PART - 1) // _PART
        part = (inputs // parts + LANES - 1) // LANES * LANES
        for first in range(0, inputs, part):
            size, tile = min(part, inputs - first), space + FOUR * _PART * 4
            is_last = first + size == inputs
            for output in range(0, count, FOUR):
                for number in range(FOUR):
                    key = at(weight + ((output + number) * inputs + first) * cell)
                    widen(key, size, float32_at(space + number * size * 4))
                for row in range(0, rows, FOUR):
                    mine, found = given + (row * inputs + first) * 4, float32_at(out + (row * outputs + output) * 4)
                    if first == 0 and is_last:
                        add_whole(float32_at(mine), inputs, wide, size, float32_at(tile), found, outputs)
                    elif first == 0:
                        add_first(float32_at(mine), inputs, wide, size, float32_at(tile), found, outputs)
                    elif is_last:
                        add_last(float32_at(mine), inputs, wide, size, float32_at(tile), found, outputs)
                    else:
                        add_next(float32_at(mine), inputs, wide, size, float32_at(tile), found, outputs)
                    tile += TILE

    return write_many
