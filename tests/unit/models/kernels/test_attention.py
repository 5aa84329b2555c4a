"""Attention of kernels is that of torch in float64, and the same bits in pages, in a chunk, alone and among others."""

from __future__ import annotations

import math

import pytest
import torch

PAGE = 16
SCALE = 0.25


class Sequence:
    """Rotated queries, keys and values of `length` tokens, and pages `first` and following that have them."""

    def __init__(self, chance, dtype, length, first, queries, kv, size):
        self.joined = torch.randn(length, queries + 2 * kv, size, generator=chance).to(dtype)
        self.length, self.queries, self.kv = length, queries, kv
        self.pages = list(range(first, first + -(-length // PAGE)))

    def write(self, keys, values):
        slots = torch.tensor([self.pages[at // PAGE] * PAGE + at % PAGE for at in range(self.length)])
        shape = (-1, *keys.shape[2:])
        keys.view(shape)[slots] = self.joined[:, self.queries : -self.kv]
        values.view(shape)[slots] = self.joined[:, -self.kv :]

    def expected(self, at, window, cap):
        """What the token `at` attends to, in float64."""
        start = max(0, at - window + 1) if window else 0
        asked = self.joined[at, : self.queries].double()
        each = self.queries // self.kv
        keys = self.joined[start : at + 1, self.queries : -self.kv].double().repeat_interleave(each, 1)
        values = self.joined[start : at + 1, -self.kv :].double().repeat_interleave(each, 1)
        scores = torch.einsum("qs,pqs->qp", asked, keys) * SCALE
        scores = torch.tanh(scores / cap) * cap if cap else scores
        return torch.einsum("qp,pqs->qs", scores.softmax(-1), values)


def attend(kernels, joined, keys, values, positions, groups, tables, window=0, cap=0.0):
    tokens, kv, size = len(joined), keys.shape[2], keys.shape[3]
    queries = joined.shape[1] - 2 * kv
    numbers = [*[0] * tokens, *positions, *[0] * tokens]
    rows = []
    for first, count, width, table in zip(*zip(*groups, strict=True), tables, strict=True):
        rows.append([first, count, width, len(table) // count * PAGE or width, len(numbers), len(table), 0])
        numbers += table
    out = torch.full((tokens, queries, size), math.nan, dtype=joined.dtype)
    longest = max(row[3] for row in rows)
    kernels.attend(
        joined.contiguous(), keys, values, torch.tensor(numbers), torch.tensor(rows), out, tokens * kv, 1,
        int(joined.dtype is torch.bfloat16), tokens, queries, kv, size, window, PAGE, longest, len(rows), SCALE, cap,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (7, 0.0), (1, 0.0), (20, 3.0), (400, 0.0)])
@pytest.mark.parametrize(("queries", "kv", "size"), [(4, 1, 32), (4, 2, 16), (3, 3, 24), (7, 1, 10)])
def test_attention(kernels, chance, dtype, queries, kv, size, window, cap, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check_attention(kernels, chance, dtype, queries, kv, size, window, cap)
    finally:
        torch.set_num_threads(before)


def check_attention(kernels, chance, dtype, queries, kv, size, window, cap):
    keys, values = (torch.zeros(20, PAGE, kv, size, dtype=dtype) for _ in range(2))
    one, other, third = (
        Sequence(chance, dtype, length, first, queries, kv, size) for length, first in ((37, 1), (90, 5), (16, 12))
    )
    for sequence in (one, other, third):
        sequence.write(keys, values)

    # single tokens of two sequences, a chunk that sees a cache, and a whole prompt
    joined = torch.cat([other.joined[89:], one.joined[36:], one.joined[20:30], third.joined])
    positions = [89, 36, *range(20, 30), *range(16)]
    tables = [[*other.pages, *one.pages, *[0] * 3], one.pages, []]
    groups = [(0, 2, 1), (2, 1, 10), (12, 1, 16)]
    found = attend(kernels, joined, keys, values, positions, groups, tables, window, cap)
    tokens = [(other, 89), (one, 36), *((one, at) for at in range(20, 30)), *((third, at) for at in range(16))]
    expected = torch.stack([sequence.expected(at, window, cap) for sequence, at in tokens])
    close = 5e-6 if dtype is torch.float32 else 8e-3
    torch.testing.assert_close(found.double(), expected, rtol=close, atol=close)

    for row in (0, 1, 5, 12, 20, 27):
        sequence, at = tokens[row]
        alone = attend(
            kernels, sequence.joined[at : at + 1], keys, values, [at], [(0, 1, 1)], [sequence.pages], window, cap
        )
        assert torch.equal(alone[0], found[row]), row
    whole = attend(kernels, one.joined, keys, values, range(37), [(0, 1, 37)], [[]], window, cap)
    assert torch.equal(whole[20:30], found[2:12])
