"""Steps of rows that decode, as CUDA graphs: one launch instead of some forty a layer.

A graph is captured per number of rows, rounded up to a bucket; its inputs lie in static buffers that each step fills.
Rows that only fill up a bucket write to page 0 and attend one token of it. All graphs share one memory pool, because
only one runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from models.engine.batch import Batch, Group

Forward = Callable[[Batch], Tensor]
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class DecodeGraphs:
    def __init__(self, forward: Forward, device: torch.device, dtype: torch.dtype, rows: int, row_pages: int) -> None:
        self._forward = forward
        self._buckets = [size for size in BUCKETS if size < rows] + [rows]
        most = self._buckets[-1]
        self._tokens = torch.zeros(1, most, dtype=torch.long, device=device)
        self._positions = torch.zeros_like(self._tokens)
        self._slots = torch.zeros(most, dtype=torch.long, device=device)
        self._lengths = torch.ones(most, dtype=torch.long, device=device)
        self._table = torch.zeros(most, row_pages, dtype=torch.long, device=device)
        self._last = torch.arange(most, device=device)
        self._dtype = dtype
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def capture(self) -> None:
        """The largest first: the others then fit into its memory."""
        pool = None
        for size in reversed(self._buckets):
            batch = self._batch(size)
            for _ in range(2):  # what is made at the first call must not be made during the capture
                self._forward(batch)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                logits = self._forward(batch)
            pool = pool or graph.pool()
            self._graphs[size] = graph, logits

    def run(self, batch: Batch) -> Tensor | None:
        """The logits of a step, where a graph computes it."""
        rows = batch.tokens.shape[1]
        size = next((size for size in self._buckets if size >= rows), None)
        if size not in self._graphs or len(batch.groups) != 1 or batch.groups[0].table is None:
            return None
        group = batch.groups[0]
        assert group.table is not None
        graph, logits = self._graphs[size]
        self._tokens[:, :rows] = batch.tokens
        self._positions[:, :rows] = batch.positions
        self._slots[:rows] = batch.slots
        self._lengths[:rows] = batch.positions[0] + 1
        self._table[:rows, : group.table.shape[1]] = group.table
        # rows of an earlier, larger step must not write to pages that are others' by now
        self._positions[:, rows:size] = 0
        self._slots[rows:size] = 0
        self._lengths[rows:size] = 1
        self._table[rows:size] = 0
        graph.replay()
        return logits[batch.last]

    def _batch(self, size: int) -> Batch:
        positions = self._positions[:, :size]
        group = Group(0, size, 1, None, positions[0].unsqueeze(1), 0, self._dtype)
        group.table, group.lengths = self._table[:size], self._lengths[:size]
        return Batch(self._tokens[:, :size], positions, self._slots[:size], self._last[:size], [group], [])
