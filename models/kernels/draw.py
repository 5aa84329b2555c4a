"""The next token of each row of scores: what `choose` (sampler.py) draws, without a close look at most tokens.

Noise costs two logarithms in float64. In float32 they are near enough to rule out all but a few tokens of a row.
"""

from __future__ import annotations

import math
from typing import Any

from numba import njit

from models.kernels.filters import BLOCK, draw_of, filter_of
from models.kernels.functions import f32
from models.kernels.memory import Cells, Function, allocate, float32_at, int8_at, int64_at, release
from models.kernels.sums import highest
from models.kernels.worker import SIGNATURE, alone, options

_SCORES, _KEYS, _NUMBERS, _MOST, _MASKS, _STARTS, _TOKENS, _BEST, _, _, _, _WIDTH = range(12)


def worker_of(cells: Cells, _cache: Cells) -> Function:
    greedy, drawn, filtered, masked = _greedy_of(cells), draw_of(cells), filter_of(cells), _mask_of(cells)
    cell = cells.size

    @njit(SIGNATURE, **alone())
    def worker(begin: int, end: int, stack: int) -> None:
        values = int64_at(stack)
        width = values[_WIDTH]
        blocks = (width + BLOCK - 1) // BLOCK
        space = allocate((BLOCK + blocks + width + 1) * 4 + width * cell)
        block, tops = float32_at(space), float32_at(space + BLOCK * 4)
        kept, allowed = float32_at(space + (BLOCK + blocks) * 4), space + (BLOCK + blocks + width + 1) * 4
        for row in range(begin, end):
            scores, numbers = values[_SCORES] + row * width * cell, float32_at(values[_NUMBERS] + row * 12)
            keys, limit = int64_at(values[_KEYS] + row * 16), int64_at(values[_MOST])[row]
            start = int64_at(values[_STARTS])[row]
            if start >= 0:
                masked(scores, width, values[_MASKS] + start, allowed)
                scores = allowed
            best, token = greedy(scores, width, block, tops)
            temperature, top_p, min_p = numbers[0], numbers[1], numbers[2]
            if temperature > f32(0.0) and math.isfinite(best / temperature):
                if 0 < limit < width or top_p < f32(1.0) or min_p > f32(0.0):
                    limit = limit if limit > 0 else width
                    token = filtered(
                        scores, width, temperature, token, limit, top_p, min_p, keys[0], keys[1], kept, block, tops
                    )
                else:
                    found = drawn(scores, width, temperature, f32(-math.inf), width, keys[0], keys[1], block, tops)
                    token = found if found >= 0 else token
            int64_at(values[_TOKENS])[row] = token
            float32_at(values[_BEST])[row] = best
        release(space)

    return worker


def _mask_of(cells: Cells) -> Function:
    at, write, cell = cells.at, cells.write, cells.size

    @njit(**options())
    def masked(scores: int, width: int, mask: int, out: int) -> None:
        """Copy the scores of tokens whose bit is set to `out`, which has the least of all for the others."""
        source, bits = at(scores), int8_at(mask)
        for first in range(0, width, 8):
            byte, target = bits[first >> 3], at(out + first * cell)
            for i in range(min(8, width - first)):
                write(target, i, f32(-math.inf))
            if byte != 0:
                for i in range(min(8, width - first)):
                    if (byte >> i) & 1:
                        target[i] = source[first + i]

    return masked


def _greedy_of(cells: Cells) -> Function:
    at, read, cell = cells.at, cells.read, cells.size

    @njit(**options())
    def greedy(scores: int, width: int, block: Any, tops: Any) -> Any:
        """The largest score and its first token; NaN if there is one. `tops` are the largest ones of blocks."""
        best, where = f32(-math.inf), 0
        for first in range(0, width, BLOCK):
            count = min(BLOCK, width - first)
            row = at(scores + first * cell)
            for i in range(count):
                block[i] = read(row, i)
            top = highest(block, count)
            tops[first // BLOCK] = top
            if not top <= best and not math.isnan(best):
                best, where = top, first
        for i in range(where, min(where + BLOCK, width)):
            if read(at(scores), i) == best:
                return best, i
        return best, where

    return greedy
