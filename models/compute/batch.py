"""The inputs of one step as one tensor: packed tokens, their cache slots, and what each attends to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.compute.pages import PagePool, pages_for

if TYPE_CHECKING:
    from models.engine.sequence import ScheduledChunk

WASTE = 64  # pages that may be read in vain before short sequences are attended separately from long ones


class Group(NamedTuple):
    """Rows that are attended together: tokens `first` to `first + rows * width` of the batch, `width` of each row.

    Each row attends at most the `length` tokens of its pages, which are the `pages` numbers of the batch from `at` on,
    as many of each row; with no pages, the tokens of its own chunk. `in_place`: a kernel reads pages where they are.
    """

    first: int
    rows: int
    width: int
    length: int
    at: int = 0
    pages: int = 0
    in_place: int = 0


class SingleToken(NamedTuple):
    """A token that attends to its sequence's pages by itself: the single one of a slice, or one of its draft."""

    part: ScheduledChunk
    offset: int
    position: int
    token: int


@dataclass(slots=True)
class StepInputs:
    """One step. `numbers` are its tokens, their positions and their slots, `count` of each, then the `drawing` places
    of the tokens that need logits, those that draw before those of `scored`, then the pages of its groups.

    One tensor, because it goes to a GPU in one copy, and into a script in one hand-over: for each tensor that it lets
    go of, a script waits for the interpreter.
    """

    numbers: Tensor
    count: int
    drawing: int
    groups: list[Group]
    draws: list[
        tuple[ScheduledChunk, int]
    ]  # the slices that draw, and after how many tokens of their draft; in the order of `last`
    order: list[ScheduledChunk] = field(default_factory=list)  # all slices, in the order of `tokens`
    scored: list[ScheduledChunk] = field(default_factory=list)

    @property
    def tokens(self) -> Tensor:
        return self.numbers[: self.count]

    @property
    def positions(self) -> Tensor:
        return self.numbers[self.count : 2 * self.count]

    @property
    def slots(self) -> Tensor:
        return self.numbers[2 * self.count : 3 * self.count]

    @property
    def last(self) -> Tensor:
        return self.numbers[3 * self.count : 3 * self.count + self.drawing]


def pack(
    slices: Sequence[ScheduledChunk],
    pool: PagePool,
    device: torch.device,
    *,
    kernel: bool = False,
    paged_chunks: bool = False,
    all_paged: bool = False,
) -> StepInputs:
    """Decoding sequences first, longest first; then the chunks of prompts. `kernel`: pages are read in place, and with
    `paged_chunks` those of chunks, too. `all_paged`: chunks with which a sequence begins have pages, too.

    The tokens of a draft are rows of their own that share pages. Each sees those before it, because all keys and values
    of a step are written before any attention is computed.
    """
    single = _single_tokens(slices)
    chunks = [part for part in slices if part.count > 1]
    size = pool.size
    tokens = [entry.token for entry in single]
    positions = [entry.position for entry in single]
    slots = [entry.part.sequence.pages[entry.position // size] * size + entry.position % size for entry in single]
    last = [at for at, entry in enumerate(single) if entry.part.draws]
    draws = [(single[at].part, single[at].offset) for at in last]
    scored = [(entry.part, at) for at, entry in enumerate(single) if entry.part.scored]
    for part in chunks:
        sequence, start, end = part.sequence, part.start, part.start + part.count
        tokens += sequence.tokens[start:end]
        positions += range(start, end)
        slots += [sequence.pages[at // size] * size + at % size for at in range(start, end)]
        if part.draws:
            last.append(len(tokens) - 1)
            draws.append((part, 0))
        if part.scored:
            scored.append((part, len(tokens) - part.count))
    for part, at in scored:
        last += range(at, at + part.scored)
    last = last or [0]
    numbers = [*tokens, *positions, *slots, *last]
    groups = []
    for first, rows in [(0, single)] if kernel and single else _alike(single, size):
        table, length = _table(rows, size)
        groups.append(Group(first, len(rows), 1, length, len(numbers), len(table), int(kernel)))
        numbers += table
    first = len(single)
    for part in chunks:
        is_paged = all_paged or part.start > 0
        pages = part.sequence.pages[: pages_for(part.start + part.count, size)] if is_paged else []
        length = len(pages) * size or part.count
        groups.append(Group(first, 1, part.count, length, len(numbers), len(pages), int(paged_chunks and is_paged)))
        numbers += pages
        first += part.count
    order = [*(entry.part for entry in single), *chunks]
    return StepInputs(
        tensor_of(numbers, device), len(tokens), len(last), groups, draws, order, [part for part, _ in scored]
    )


def _single_tokens(slices: Sequence[ScheduledChunk]) -> list[SingleToken]:
    entries = [SingleToken(part, 0, part.start, part.token) for part in slices if part.count == 1]
    for entry in entries[:]:
        part = entry.part
        entries += (SingleToken(part, at, part.start + at, token) for at, token in enumerate(part.draft, 1))
    return sorted(entries, key=lambda entry: -entry.position)


def _alike(single: list[SingleToken], size: int) -> list[tuple[int, list[SingleToken]]]:
    """Split the rows, longest first, where padding all of them to the longest would waste much."""
    groups: list[tuple[int, list[SingleToken]]] = []
    waste = 0
    for at, entry in enumerate(single):
        pages = pages_for(entry.position + 1, size)
        if groups:
            longest = pages_for(groups[-1][1][0].position + 1, size)
            waste += longest - pages
            if waste <= WASTE or 2 * pages > longest:
                groups[-1][1].append(entry)
                continue
        groups.append((at, [entry]))
        waste = 0
    return groups


def _table(rows: list[SingleToken], size: int) -> tuple[list[int], int]:
    """The pages of every row, padded to the longest, and how many tokens they hold."""
    count = pages_for(rows[0].position + 1, size)
    table: list[int] = []
    for entry in rows:
        mine = entry.part.sequence.pages[:count]
        table += mine
        table += [0] * (count - len(mine))
    return table, count * size


def tensor_of(numbers: list[int], device: torch.device) -> Tensor:
    """Through NumPy, which converts a list several times faster than torch."""
    packed = torch.from_numpy(np.array(numbers, dtype=np.int64))
    # From pinned memory: otherwise a GPU would have to finish all its work before the copy.
    return packed if device.type == "cpu" else packed.pin_memory().to(device, non_blocking=True)
