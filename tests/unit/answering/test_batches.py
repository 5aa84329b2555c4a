"""Batches: what the engine raises about one job fails that job alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from app.answering.batches import Batches
from models.interface.generation import Engine, Job, Sampling, Stream
from models.served.paced import PacedEngine
from tests.unit.delivery.inflight_requests import inflight_of
from tests.virtual_time import in_virtual_time


class Picky:
    """Refuses a job without a prompt, like an engine that cannot place it; another engine does the rest."""

    has_room = True

    def __init__(self) -> None:
        self._engine = PacedEngine(1.0)

    def submit(self, jobs: Sequence[Job]) -> Sequence[Stream]:
        if not all(job.prompt for job in jobs):
            raise IndexError("no prompt")
        return self._engine.submit(jobs)


@in_virtual_time
async def test_job_that_the_engine_cannot_take_does_not_take_its_batch_with_it() -> None:
    batches = Batches(max_size=3, budget_s=0.0)
    engine = cast(Engine, Picky())

    async def answer(prompt: tuple[int, ...]) -> int:
        job = Job(id="j", prompt=prompt, max_tokens=2, sampling=Sampling(seed=1))
        async with batches.stream(0, engine, job, inflight_of()) as stream:
            return len([event async for event in stream])

    async with asyncio.timeout(60):
        good, bad, other = await asyncio.gather(answer((1,)), answer(()), answer((2,)), return_exceptions=True)
    assert isinstance(bad, IndexError)
    assert cast(Any, good) >= 1
    assert cast(Any, other) >= 1


@in_virtual_time
async def test_job_alone_that_the_engine_cannot_take_raises_where_it_is_read() -> None:
    batches = Batches(max_size=1, budget_s=0.0)
    job = Job(id="j", prompt=(), max_tokens=2, sampling=Sampling(seed=1))
    with pytest.raises(IndexError):
        async with batches.stream(0, cast(Engine, Picky()), job, inflight_of()):
            pass
