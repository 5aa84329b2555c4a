"""Attention of kernels is that of torch in float64, and the same bits in a chunk, alone and among others."""

from __future__ import annotations

import math

import pytest
import torch

from models.kernels.schemas import NumberForm
from models.weights.threads import computing_threads

PAGE = 16
SCALE = 0.25


class Sequence:
    """Rotated queries, keys and values of `length` tokens, and pages `first` and following that have them."""

    def __init__(self, chance, form, length, first, queries, kv, size):
        self.joined = torch.randn(length, queries + 2 * kv, size, generator=chance).to(dtypes_of(form)[0])
        self.cached = self.joined.to(dtypes_of(form)[1])
        self.length, self.queries, self.kv = length, queries, kv
        self.pages = list(range(first, first + -(-length // PAGE)))

    def write(self, keys, values):
        slots = torch.tensor([self.pages[at // PAGE] * PAGE + at % PAGE for at in range(self.length)])
        shape = (-1, *keys.shape[2:])
        keys.view(shape)[slots] = self.cached[:, self.queries : -self.kv]
        values.view(shape)[slots] = self.cached[:, -self.kv :]

    def expected(self, at, window, cap):
        """What the token `at` attends to, in float64."""
        start = max(0, at - window + 1) if window else 0
        asked = self.joined[at, : self.queries].double()
        each = self.queries // self.kv
        keys = self.cached[start : at + 1, self.queries : -self.kv].double().repeat_interleave(each, 1)
        values = self.cached[start : at + 1, -self.kv :].double().repeat_interleave(each, 1)
        scores = torch.einsum("qs,pqs->qp", asked, keys) * SCALE
        scores = torch.tanh(scores / cap) * cap if cap else scores
        return torch.einsum("qp,pqs->qs", scores.softmax(-1), values)


def dtypes_of(form):
    """Of rows and of the cache."""
    return (
        torch.bfloat16 if form is NumberForm.BFLOAT16 else torch.float32,
        torch.float32 if form is NumberForm.FLOAT32 else torch.bfloat16,
    )


def attend(kernels, form, joined, keys, values, positions, groups, tables, window=0, cap=0.0, tile=4):
    tokens, kv, size = len(joined), keys.shape[2], keys.shape[3]
    queries = joined.shape[1] - 2 * kv
    numbers = [*[0] * tokens, *positions, *[0] * tokens]
    rows = []
    for first, count, width, table in zip(*zip(*groups, strict=True), tables, strict=True):
        rows.append([first, count, width, len(table) // count * PAGE, len(numbers), len(table), 0])
        numbers += table
    out = torch.full((tokens, queries, size), math.nan, dtype=joined.dtype)
    longest, tiles = max(row[3] for row in rows), sum(count * -(-width // tile) for _, count, width in groups)
    kernels.attend(
        joined.contiguous(), keys, values, torch.tensor(numbers), torch.tensor(rows), out, tiles * kv, 1, form,
        tokens, queries, kv, size, window, PAGE, longest, len(rows), tile, SCALE, cap,
    )  # fmt: skip
    return out


@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (7, 0.0), (1, 0.0), (20, 3.0), (400, 0.0)])
@pytest.mark.parametrize(
    ("queries", "kv", "size", "tile"),
    [(4, 1, 32, 4), (4, 2, 16, 8), (3, 3, 24, 16), (7, 1, 10, 2), (4, 1, 136, 3), (2, 1, 64, 1), (1, 1, 200, 16)],
)
def test_attention(kernels, chance, form, queries, kv, size, tile, window, cap):
    keys, values = (torch.full((20, PAGE, kv, size), math.nan, dtype=dtypes_of(form)[1]) for _ in range(2))
    one, other, third = (
        Sequence(chance, form, length, first, queries, kv, size) for length, first in ((37, 1), (90, 5), (16, 12))
    )
    for sequence in (one, other, third):
        sequence.write(keys, values)

    # single tokens of two sequences, a chunk that sees earlier tokens, and a whole prompt
    joined = torch.cat([other.joined[89:], one.joined[36:], one.joined[20:30], third.joined])
    positions = [89, 36, *range(20, 30), *range(16)]
    tables = [[*other.pages, *one.pages, *[0] * 3], one.pages, third.pages]
    groups = [(0, 2, 1), (2, 1, 10), (12, 1, 16)]
    tokens = [(other, 89), (one, 36), *((one, at) for at in range(20, 30)), *((third, at) for at in range(16))]
    expected = torch.stack([sequence.expected(at, window, cap) for sequence, at in tokens])
    close = 8e-3 if form is NumberForm.BFLOAT16 else 5e-6
    for threads in (1, 2):
        with computing_threads(threads):
            found = attend(kernels, form, joined, keys, values, positions, groups, tables, window, cap, tile)
            torch.testing.assert_close(found.double(), expected, rtol=close, atol=close)

            for row in (0, 1, 5, 12, 20, 27):
                sequence, at = tokens[row]
                lone, place = sequence.joined[at : at + 1], [(0, 1, 1)]
                alone = attend(kernels, form, lone, keys, values, [at], place, [sequence.pages], window, cap)
                assert torch.equal(alone[0], found[row]), row
            whole = attend(kernels, form, one.joined, keys, values, range(37), [(0, 1, 37)], [one.pages], window, cap)
            assert torch.equal(whole[20:30], found[2:12])
