"""The slices of one step as tensors: packed tokens, where their keys and values go, and what each attends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.engine.pages import PagePool
from models.engine.row import Slice, pages_for

WASTE = 64  # pages that may be read in vain before short rows are attended apart from long ones


@dataclass(slots=True)
class Group:
    """Rows that are attended together: tokens `first` to `first + rows * width` of the batch, `width` of each row.

    `pages` [rows * n] is None where nothing but the chunk itself is attended, or where a kernel reads the pages of
    single tokens itself: it takes `table` [rows, n] and `lengths` [rows]. `positions` is [rows, width].
    """

    first: int
    rows: int
    width: int
    pages: Tensor | None
    positions: Tensor
    length: int
    dtype: torch.dtype
    table: Tensor | None = None
    lengths: Tensor | None = None
    _masks: dict[int | None, Tensor] = field(default_factory=dict)

    def in_place(self) -> None:
        assert self.pages is not None
        self.table, self.lengths = self.pages.view(self.rows, -1), self.positions[:, 0] + 1
        self.pages = None

    def moved(self) -> None:
        """The positions have changed."""
        self._masks.clear()

    def mask_where_needed(self, window: int | None) -> Tensor | None:
        """None where a chunk attends itself alone, as far back as it goes."""
        alone = self.pages is None and self.width > 1 and (window is None or self.width <= window)
        return None if alone else self.mask(window)

    def mask(self, window: int | None) -> Tensor:
        """What is added to the scores [rows, 1, width, length]: 0 where a token attends, -inf elsewhere."""
        if window not in self._masks:
            at = torch.arange(self.length, device=self.positions.device)
            positions = self.positions.unsqueeze(-1)
            hidden = at > positions
            if window is not None:
                hidden |= at <= positions - window
            mask = torch.zeros(hidden.shape, dtype=self.dtype, device=at.device).masked_fill_(hidden, -torch.inf)
            self._masks[window] = mask.unsqueeze(1)
        return self._masks[window]


class Place(NamedTuple):
    """A token that attends its row's pages by itself: the single one of a slice, or one of its draft."""

    part: Slice
    offset: int
    position: int
    token: int


@dataclass(slots=True)
class Batch:
    """One step: `tokens` and `positions` are [1, T], `slots` [T], `last` the tokens that draw."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    last: Tensor
    groups: list[Group]
    draws: list[tuple[Slice, int]]  # who draws, and behind how many tokens of its draft; in the order of `last`
    order: list[Slice] = field(default_factory=list)  # all of them, in the order of `tokens`


def pack(
    slices: Sequence[Slice], pool: PagePool, device: torch.device, dtype: torch.dtype, *, kernel: bool = False
) -> Batch:
    """Rows that decode in front, the longest first; then the chunks of prompts. `kernel`: pages are read in place.

    The tokens of a draft are rows of their own, which share pages: each sees those before it, because all keys and
    values of a step are written before anything is attended.
    """
    single = _places(slices)
    chunks = [part for part in slices if part.count > 1]
    size = pool.size
    tokens = [place.token for place in single]
    positions = [place.position for place in single]
    slots = [place.part.row.pages[place.position // size] * size + place.position % size for place in single]
    last = [at for at, place in enumerate(single) if place.part.draws]
    draws = [(single[at].part, single[at].offset) for at in last]
    for part in chunks:
        row, start, end = part.row, part.start, part.start + part.count
        tokens += row.tokens[start:end]
        positions += range(start, end)
        slots += [row.pages[at // size] * size + at % size for at in range(start, end)]
        if part.draws:
            last.append(len(tokens) - 1)
            draws.append((part, 0))
    at = _tensor([tokens, positions, slots], device)
    alike = [(0, single)] if kernel and single else _alike(single, size)
    groups = [_single(rows, first, pool, at[1], dtype) for first, rows in alike]
    if kernel and single:
        groups[0].in_place()
    first = len(single)
    for part in chunks:
        groups.append(_chunk(part, first, pool, at[1], dtype))
        first += part.count
    keep = _tensor(last or [0], device)
    return Batch(at[:1], at[1:2], at[2], keep, groups, draws, [*(place.part for place in single), *chunks])


def _places(slices: Sequence[Slice]) -> list[Place]:
    found = [Place(part, 0, part.start, part.row.tokens[part.start]) for part in slices if part.count == 1]
    for place in found[:]:
        part = place.part
        found += (Place(part, at, part.start + at, token) for at, token in enumerate(part.draft, 1))
    return sorted(found, key=lambda place: -place.position)


def _alike(single: list[Place], size: int) -> list[tuple[int, list[Place]]]:
    """Split rows, the longest first, where reading all of them to the length of the longest would waste much."""
    found: list[tuple[int, list[Place]]] = []
    waste = 0
    for at, place in enumerate(single):
        pages = pages_for(place.position + 1, size)
        if found:
            longest = pages_for(found[-1][1][0].position + 1, size)
            waste += longest - pages
            if waste <= WASTE or 2 * pages > longest:
                found[-1][1].append(place)
                continue
        found.append((at, [place]))
        waste = 0
    return found


def _single(rows: list[Place], first: int, pool: PagePool, positions: Tensor, dtype: torch.dtype) -> Group:
    count = pages_for(rows[0].position + 1, pool.size)
    table: list[int] = []
    for place in rows:
        mine = place.part.row.pages[:count]
        table += mine
        table += [0] * (count - len(mine))
    pages = _tensor(table, positions.device)
    where = positions[first : first + len(rows)].unsqueeze(1)
    return Group(first, len(rows), 1, pages, where, count * pool.size, dtype)


def _chunk(part: Slice, first: int, pool: PagePool, positions: Tensor, dtype: torch.dtype) -> Group:
    where = positions[first : first + part.count].unsqueeze(0)
    if part.start == 0:
        return Group(first, 1, part.count, None, where, part.count, dtype)
    count = pages_for(part.start + part.count, pool.size)
    pages = _tensor(part.row.pages[:count], positions.device)
    return Group(first, 1, part.count, pages, where, count * pool.size, dtype)


def _tensor(numbers: list[int] | list[list[int]], device: torch.device) -> Tensor:
    """Through NumPy, which reads a list several times faster than torch."""
    return torch.from_numpy(np.array(numbers, dtype=np.int64)).to(device)
