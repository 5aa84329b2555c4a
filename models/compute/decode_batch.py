"""Decode steps of unchanged sequences: the inputs of the last step, advanced by one token each.

Most steps are of this kind, and packing a small model's batch anew takes a twentieth of its forward. CPU only, where
NumPy changes a tensor in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from models.compute.batch import StepInputs

if TYPE_CHECKING:
    from models.engine.sequence import ScheduledChunk


class Steady:
    def __init__(self, batch: StepInputs, slices: Sequence[ScheduledChunk], page_size: int) -> None:
        """`batch` was made from `slices`, all of which decode in one group."""
        index_of = {id(part.sequence): at for at, part in enumerate(batch.order)}
        self._batch = batch
        self._size = page_size
        self._steps = 0
        self._sequences = [
            (part.sequence, part.sequence.pages, part.start, index_of[id(part.sequence)]) for part in slices
        ]
        self._known = [len(part.sequence.pages) for part in batch.order]  # pages in the table
        (group,) = batch.groups
        numbers = batch.numbers.numpy()
        self._tokens, self._positions, self._slots = numbers[: 3 * batch.count].reshape(3, -1)
        self._table = numbers[group.at : group.at + group.pages].reshape(len(slices), -1)
        self._each = np.arange(len(slices))

    @classmethod
    def of(cls, batch: StepInputs, slices: Sequence[ScheduledChunk], page_size: int) -> Steady | None:
        decodes = len(batch.groups) == 1 and len(batch.draws) == len(slices) == batch.count
        fits = decodes and batch.groups[0].pages and batch.numbers.device.type == "cpu"
        return cls(batch, slices, page_size) if fits else None

    def next(self, slices: Sequence[ScheduledChunk]) -> StepInputs | None:
        """The batch of `slices`, if they are the same sequences one token further and no group has to grow."""
        order = self._in_order(slices)
        if order is None:
            return None
        self._steps += 1
        self._positions += 1
        self._tokens[:] = [part.sequence.tokens[-1] for part in order]
        width = self._table.shape[1]
        for at, part in enumerate(order):
            pages, known = part.sequence.pages, self._known[at]
            if len(pages) > known:
                self._table[at, known : len(pages)] = pages[known:width]
                self._known[at] = len(pages)
        self._slots[:] = self._table[self._each, self._positions // self._size] * self._size
        self._slots += self._positions % self._size
        batch = self._batch
        batch.order, batch.draws = order, [(part, 0) for part in order]
        return batch

    def _in_order(self, slices: Sequence[ScheduledChunk]) -> list[ScheduledChunk] | None:
        if len(slices) != len(self._sequences) or self._positions[0] + 1 >= self._batch.groups[0].length:
            return None
        order = list(slices)
        for part, (sequence, pages, start, at) in zip(slices, self._sequences, strict=True):
            # A sequence that released its pages and got others has another list, too.
            goes_on = part.sequence is sequence and sequence.pages is pages and part.start == start + self._steps + 1
            if not goes_on or part.count != 1 or part.draft or len(sequence.tokens) != part.start + 1:
                return None
            order[at] = part
        return order
