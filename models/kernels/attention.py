"""Attention of tokens to the pages of their sequences, or to the chunk of which they are part.

For each token and each head of keys: the scores of all queries that share its keys, their softmax, and the sum of the
values. A token reads what it attends in the order of positions, in pages as in a chunk, so its bits are the same.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from models.kernels.functions import exp, f32, tanh
from models.kernels.memory import Cells, Function, allocate, float32_at, float64_at, int64_at, release
from models.kernels.sums import add_four, dot, fma, four_dots, total
from models.kernels.worker import SIGNATURE, alone, options

GROUP = 7
"""Numbers of a `Group` (models/engine/compute/batch.py)."""
_JOINED, _KEYS, _VALUES, _NUMBERS, _GROUPS, _OUT = range(6)
_ROWS, _, _, _TOKENS, _QUERIES, _KV, _SIZE, _WINDOW, _PAGE, _LONGEST, _MANY, _SCALE, _CAP = range(6, 19)


@njit(**options())
def largest_of(scores: Any, count: int) -> Any:
    most = scores[0]
    for i in range(count):
        most = max(most, scores[i])
    return most


@njit(**options())
def softmax(scores: Any, count: int) -> None:
    most = largest_of(scores, count)
    for i in range(count):
        scores[i] = exp(scores[i] - most)
    share = f32(1.0) / total(scores, count)
    for i in range(count):
        scores[i] *= share


@njit(**options())
def cap_scores(scores: Any, count: int, cap: Any) -> None:
    for i in range(count):
        scores[i] = tanh(scores[i] / cap) * cap


@njit(**options())
def in_turn(number: int, rows: int) -> int:
    """First, last, second, last but one and so on: a chunk's last tokens attend most, and threads share rows evenly."""
    return number // 2 if number % 2 == 0 else rows - 1 - number // 2


@njit(**options())
def group_of(token: int, groups: int, count: int) -> Any:
    """The address of the group that has `token`."""
    for number in range(count):
        group = int64_at(groups + number * GROUP * 8)
        if token < group[0] + group[1] * group[2]:
            return groups + number * GROUP * 8
    return groups


@njit(**options())
def write_places(places: Any, first: int, length: int, table: Any, page: int, begin: int, step: int) -> None:
    """The addresses of the keys of `length` positions from `first` on: `begin` and `step` are those of slots, or of a
    chunk's tokens if `page` is 0.
    """
    for index in range(length):
        at = first + index
        places[index] = begin + (at if page == 0 else table[at // page] * page + at % page) * step


def _scorer(cells: Cells) -> Function:
    at = cells.at

    @njit(**options())
    def write_scores(asked: int, places: Any, length: int, scores: Any, longest: int, each: int, size: int) -> None:
        """`scores` [each, longest] of `asked` [each, size]."""
        for index in range(length):
            key, query = at(places[index]), 0
            while query + 4 <= each:
                rows = asked + query * size * 4
                found = four_dots(
                    float32_at(rows), float32_at(rows + size * 4), float32_at(rows + size * 8),
                    float32_at(rows + size * 12), key, size,
                )  # fmt: skip
                scores[query * longest + index] = found[0]
                scores[(query + 1) * longest + index] = found[1]
                scores[(query + 2) * longest + index] = found[2]
                scores[(query + 3) * longest + index] = found[3]
                query += 4
            while query < each:
                scores[query * longest + index] = dot(float32_at(asked + query * size * 4), key, size)
                query += 1

    return write_scores


def _adder(cells: Cells) -> Function:
    at, read = cells.at, cells.read

    @njit(**options())
    def add(sums: Any, share: Any, row: Any, size: int) -> None:
        for i in range(size):
            sums[i] = fma(share, read(row, i), sums[i])

    @njit(**options())
    def add_values(
        sums: int, places: Any, apart: int, length: int, scores: int, longest: int, each: int, size: int
    ) -> None:
        """Values are `apart` bytes behind their keys. `sums` [each, size] in float32."""
        index = 0
        while index + 4 <= length:
            a, b = at(places[index] + apart), at(places[index + 1] + apart)
            c, d = at(places[index + 2] + apart), at(places[index + 3] + apart)
            for query in range(each):
                shares = float32_at(scores + (query * longest + index) * 4)
                add_four(float32_at(sums + query * size * 4), shares, a, b, c, d, size)
            index += 4
        while index < length:
            for query in range(each):
                share = float32_at(scores + (query * longest + index) * 4)[0]
                add(float32_at(sums + query * size * 4), share, at(places[index] + apart), size)
            index += 1

    return add_values


def worker_of(cells: Cells) -> Function:
    at, read, write, cell = cells.at, cells.read, cells.write, cells.size
    write_scores, add_values = _scorer(cells), _adder(cells)

    @njit(**options())
    def copy_queries(given: int, asked: int, sums: int, count: int, scale: Any) -> None:
        row, scaled, none = at(given), float32_at(asked), float32_at(sums)
        for i in range(count):
            scaled[i] = read(row, i) * scale
            none[i] = f32(0.0)

    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        positions = int64_at(values[_NUMBERS] + values[_TOKENS] * 8)
        queries, kv, size, longest = values[_QUERIES], values[_KV], values[_SIZE], values[_LONGEST]
        scale, cap = f32(float64_at(stack)[_SCALE]), f32(float64_at(stack)[_CAP])
        window, each = values[_WINDOW], queries // kv
        row, line = size * cell, (queries + 2 * kv) * size * cell
        space = allocate(longest * 8 + each * (2 * size + longest) * 4)
        places, asked = int64_at(space), space + longest * 8
        sums, scores = asked + each * size * 4, asked + 2 * each * size * 4
        for number in range(begin, end):
            task = in_turn(number, values[_ROWS])
            token, head = task // kv, task % kv
            group = int64_at(group_of(token, values[_GROUPS], values[_MANY]))
            first = max(0, positions[token] - window + 1) if window > 0 else 0
            length = positions[token] + 1 - first
            copy_queries(values[_JOINED] + token * line + head * each * row, asked, sums, each * size, scale)
            pages = group[5] // group[1]
            table = int64_at(values[_NUMBERS] + (group[4] + (token - group[0]) // group[2] * pages) * 8)
            if pages == 0:
                keys, apart = values[_JOINED] + group[0] * line + (queries + head) * row, kv * row
                write_places(places, first, length, table, 0, keys, line)
            else:
                apart = values[_VALUES] - values[_KEYS]
                write_places(places, first, length, table, values[_PAGE], values[_KEYS] + head * row, kv * row)
            write_scores(asked, places, length, float32_at(scores), longest, each, size)
            for query in range(each):
                if cap > f32(0.0):
                    cap_scores(float32_at(scores + query * longest * 4), length, cap)
                softmax(float32_at(scores + query * longest * 4), length)
            add_values(sums, places, apart, length, scores, longest, each, size)
            out, found = at(values[_OUT] + (token * queries + head * each) * row), float32_at(sums)
            for i in range(each * size):
                write(out, i, found[i])
        release(space)

    return worker
