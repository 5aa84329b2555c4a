"""Sequences that decode, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

from models.compute.pages import PagePool
from models.engine.sequence import ScheduledChunk, SequenceState
from models.interface.generation import Job
from models.interface.token_stream import TokenStream


def sequences_of(lengths: Sequence[int], pool: PagePool) -> list[SequenceState]:
    """Sequences whose tokens are all in the cache but the last."""
    sequences = []
    for number, length in enumerate(lengths):
        job = Job(str(number), tuple(range(5, 5 + length)), 90)
        sequence = SequenceState(job, TokenStream(lambda *_: None), number, 0.0, 200)
        assert sequence.allocate(pool)
        sequence.advance(length - 1 - sequence.computed, pool)
        sequences.append(sequence)
    return sequences


def slices_of(sequences: Sequence[SequenceState]) -> list[ScheduledChunk]:
    return [ScheduledChunk(sequence, sequence.computed, 1) for sequence in sequences]
