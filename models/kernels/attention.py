"""Attention of tokens to the pages of their sequences.

For each head of keys and each token, or several that follow each other: the scores of all queries that share its keys,
their softmax, and the sum of the values. A token's keys are read in the order of positions, whatever is computed with
it, so its bits are the same.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from models.kernels.functions import f32
from models.kernels.memory import Cells, Function, allocate, float32_at, float64_at, int64_at, release
from models.kernels.scores import scorer_of, write_shares
from models.kernels.tiles import AHEAD
from models.kernels.value_sums import adder_of
from models.kernels.worker import SIGNATURE, alone, options

GROUP = 7
"""Numbers of a `Group` (models/compute/batch.py)."""
_JOINED, _KEYS, _VALUES, _NUMBERS, _GROUPS, _OUT = range(6)
_ROWS, _, _, _TOKENS, _QUERIES, _KV, _SIZE, _WINDOW, _PAGE, _LONGEST, _MANY, _TILE, _SCALE, _CAP = range(6, 20)
_GOLDEN = 0.618


@njit(**options())
def stride_of(tasks: int) -> int:
    """The tasks are computed in steps of it: of those that follow each other in a batch, which take about as long, each
    thread computes some.
    """
    stride = max(1, int(tasks * _GOLDEN))
    while True:
        one, other = tasks, stride
        while other:
            one, other = other, one % other
        if one == 1:
            return stride
        stride += 1


@njit(**options())
def tile_of(number: int, groups: int, many: int, most: int) -> Any:
    """The address of a tile's group, its first token, and how many tokens it has."""
    for index in range(many):
        at = groups + index * GROUP * 8
        group = int64_at(at)
        each = (group[2] + most - 1) // most
        if number < group[1] * each or index == many - 1:
            begin = number % each * most
            return at, group[0] + number // each * group[2] + begin, min(most, group[2] - begin)
        number -= group[1] * each
    return groups, 0, 0


@njit(**options())
def table_of(group: Any, token: int) -> int:
    """Where the pages of a token begin among the numbers of a `Batch`."""
    return group[4] + (token - group[0]) // group[2] * (group[5] // group[1])


@njit(**options())
def first_of(position: int, window: int) -> int:
    return max(0, position - window + 1) if window > 0 else 0


@njit(**options())
def write_places(places: Any, first: int, length: int, table: Any, page: int, begin: int, step: int) -> None:
    """The addresses of the keys of `length` positions from `first` on, and `AHEAD` times the last one; `begin` and
    `step` are those of slots.
    """
    for index in range(length):
        at = first + index
        places[index] = begin + (table[at // page] * page + at % page) * step
    for index in range(length, length + AHEAD):
        places[index] = places[length - 1]


def worker_of(cells: Cells, cache: Cells) -> Function:
    at, read, write, cell = cells.at, cells.read, cells.write, cells.size
    kept = cache.size
    write_scores, add_values = scorer_of(cache), adder_of(cache)

    @njit(**options())
    def copy_queries(given: int, asked: int, sums: int, count: int, scale: Any) -> None:
        row, scaled, none = at(given), float32_at(asked), float32_at(sums)
        for i in range(count):
            scaled[i] = read(row, i) * scale
            none[i] = f32(0.0)

    @njit(**options())
    def write_out(sums: int, out: int, count: int) -> None:
        found, row = float32_at(sums), at(out)
        for i in range(count):
            write(row, i, found[i])

    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        positions = int64_at(values[_NUMBERS] + values[_TOKENS] * 8)
        queries, kv, size, longest = values[_QUERIES], values[_KV], values[_SIZE], values[_LONGEST]
        scale, cap = f32(float64_at(stack)[_SCALE]), f32(float64_at(stack)[_CAP])
        window, each, apart = values[_WINDOW], queries // kv, values[_VALUES] - values[_KEYS]
        row, line, stride = size * cell, (queries + 2 * kv) * size * cell, stride_of(values[_ROWS])
        most = values[_TILE] * each
        space = allocate((longest + AHEAD) * 8 + most * (2 * size + longest) * 4)
        asked = space + (longest + AHEAD) * 8
        sums, scores = asked + most * size * 4, asked + 2 * most * size * 4
        for number in range(begin, end):
            task = number * stride % values[_ROWS]
            head = task % kv
            at_group, token, count = tile_of(task // kv, values[_GROUPS], values[_MANY], values[_TILE])
            table = int64_at(values[_NUMBERS] + table_of(int64_at(at_group), token) * 8)
            first = first_of(positions[token], window)
            length = positions[token + count - 1] + 1 - first
            keys, step = values[_KEYS] + head * size * kept, kv * size * kept
            write_places(int64_at(space), first, length, table, values[_PAGE], keys, step)
            for one in range(count):
                given = values[_JOINED] + (token + one) * line + head * each * row
                mine = one * each * size * 4
                copy_queries(given, asked + mine, sums + mine, each * size, scale)
            write_scores(asked, int64_at(space), length, scores, longest, count * each, size)
            for one in range(count * each):
                position = positions[token + one // each]
                before = first_of(position, window) - first
                write_shares(scores + one * longest * 4, before, position + 1 - first, length, cap)
            add_values(sums, space, apart, length, scores, longest, count * each, size)
            for one in range(count):
                out = values[_OUT] + ((token + one) * queries + head * each) * row
                write_out(sums + one * each * size * 4, out, each * size)
        release(space)

    return worker
