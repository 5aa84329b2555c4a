"""Decode steps as CUDA graphs: one launch instead of about forty per layer.

A graph is captured per number of rows, rounded up to a bucket. Its inputs are in static buffers that each step fills.
Rows that only fill a bucket write to page 0 and attend to one token of it. All graphs share one memory pool, because
only one runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from models.compute.batch import Group, StepInputs

Forward = Callable[[StepInputs], Tensor]
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class DecodeGraphs:
    def __init__(self, forward: Forward, device: torch.device, rows: int, row_pages: int) -> None:
        self._forward = forward
        self._device = device
        self._row_pages = row_pages
        self._buckets = [size for size in BUCKETS if size < rows] + [rows]
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, StepInputs, Tensor]] = {}

    def capture(self) -> None:
        """All of them or none. What a forward raises in a capture may leave the capture's stream the current one."""
        before = torch.cuda.current_stream(self._device)
        try:
            self._capture()
        except BaseException:
            self._graphs.clear()
            torch.cuda.set_stream(before)
            with suppress(RuntimeError):
                torch.cuda.synchronize(self._device)
            raise

    def _capture(self) -> None:
        """The largest first: the others then fit into its memory."""
        pool = None
        stream = torch.cuda.Stream(self._device)  # torch's own is of the first device that captured
        for size in reversed(self._buckets):
            batch = still(size, self._row_pages, self._device)
            for _ in range(2):  # what is allocated at the first call must not be allocated during the capture
                self._forward(batch)
            torch.cuda.synchronize(self._device)
            graph = torch.cuda.CUDAGraph()
            # of this thread: what other threads do on the GPU meanwhile is not part of it
            with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
                logits = self._forward(batch)
            pool = pool or graph.pool()
            self._graphs[size] = graph, batch, logits

    def run(self, batch: StepInputs) -> Tensor | None:
        """The logits of a step, if a graph computes it."""
        size = next((size for size in self._buckets if size >= batch.count), None)
        decodes = len(batch.groups) == 1 and batch.groups[0].in_place and batch.groups[0].width == 1
        if size not in self._graphs or not decodes:
            return None
        graph, held, logits = self._graphs[size]
        fill(held, batch)
        graph.replay()
        return logits[batch.last]


def still(rows: int, row_pages: int, device: torch.device) -> StepInputs:
    """A batch of padding rows only, of `row_pages` pages each."""
    numbers = torch.zeros(4 * rows + rows * row_pages, dtype=torch.long, device=device)
    numbers[3 * rows : 4 * rows] = torch.arange(rows, device=device)
    group = Group(0, rows, 1, 0, at=4 * rows, pages=rows * row_pages, in_place=1)
    return StepInputs(numbers, rows, rows, [group], [])


def fill(held: StepInputs, batch: StepInputs) -> None:
    """Copy a step into a batch of at least as many rows; the rest are padding."""
    rows = batch.count
    for mine, theirs in (
        (held.tokens, batch.tokens),
        (held.positions, batch.positions),
        (held.slots, batch.slots),
        (_table(held), _table(batch)),
    ):
        # rows of an earlier, larger step must not write to pages that others hold now
        mine[rows:] = 0
        if mine.dim() == 1:
            mine[:rows] = theirs
        else:
            mine[:rows, : theirs.shape[1]] = theirs


def _table(batch: StepInputs) -> Tensor:
    """The pages of its rows [rows, n]."""
    (group,) = batch.groups
    return batch.numbers[group.at : group.at + group.pages].view(group.rows, -1)
