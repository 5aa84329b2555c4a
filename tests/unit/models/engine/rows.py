"""Rows that decode, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

from models.engine.compute.pages import PagePool
from models.engine.sequence import ScheduledChunk, SequenceState
from models.generation import Job
from models.token_stream import TokenStream


def rows_of(lengths: Sequence[int], pool: PagePool) -> list[SequenceState]:
    """Rows whose tokens are all in the cache but the last."""
    rows = []
    for number, length in enumerate(lengths):
        job = Job(str(number), tuple(range(5, 5 + length)), 90)
        row = SequenceState(job, TokenStream(lambda *_: None), number, 0.0, 200)
        assert row.hold(pool)
        row.advance(length - 1 - row.computed, pool)
        rows.append(row)
    return rows


def slices_of(rows: Sequence[SequenceState]) -> list[ScheduledChunk]:
    return [ScheduledChunk(row, row.computed, 1) for row in rows]
