"""From requests to token streams: the batchers of each partition, one per engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from app.delivery.inflight import InFlight
from models.interface.batcher import Batcher, Flush
from models.interface.generation import Engine, Job, Stream


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    job: Job
    inflight: InFlight
    stream: asyncio.Future[Stream]


class Batches:
    """Submits jobs to their engine in batches per partition. Belongs to the event loop that creates it."""

    def __init__(self, *, max_size: int, budget_s: float, observe: Callable[[int, Flush], None] | None = None) -> None:
        self._max_size = max_size
        self._budget_s = budget_s
        self._observe = observe or (lambda _partition, _flush: None)
        self._of: dict[tuple[int, Engine], Batcher[_Asked]] = {}

    def forget(self, engine: Engine) -> None:
        """The engine has stopped."""
        for key in [key for key in self._of if key[1] is engine]:
            del self._of[key]

    @asynccontextmanager
    async def stream(self, partition: int, engine: Engine, job: Job, inflight: InFlight) -> AsyncIterator[Stream]:
        """The job's stream, which ends early if the request is stopped. Closing it early cancels the job."""
        stream = await self._begin(partition, engine, job, inflight)
        try:
            with inflight.stop.listening(stream.cancel):
                yield stream
        finally:
            inflight.timeline.admitted = None if stream.admitted_at is None else int(stream.admitted_at * 1e9)
            stream.cancel()

    async def _begin(self, partition: int, engine: Engine, job: Job, inflight: InFlight) -> Stream:
        """Wait until the job's batch is submitted; cancelling the wait removes the job."""
        if (batcher := self._of.get((partition, engine))) is None:  # an empty one is false
            batcher = self._make(partition, engine)
        asked = _Asked(job, inflight, asyncio.get_running_loop().create_future())
        batcher.add(asked, job.priority)
        try:
            return await asked.stream
        except asyncio.CancelledError:
            batcher.remove(asked)
            if asked.stream.done() and not asked.stream.cancelled() and asked.stream.exception() is None:
                asked.stream.result().cancel()
            raise

    def _make(self, partition: int, engine: Engine) -> Batcher[_Asked]:
        batcher: Batcher[_Asked] = Batcher(
            self._max_size,
            self._budget_s,
            has_room=lambda: engine.has_room,
            flush=partial(_flush, engine),
            timers=asyncio.get_running_loop(),
            observe=partial(self._observe, partition),
        )
        self._of[partition, engine] = batcher
        return batcher


def _flush(engine: Engine, batch: Sequence[_Asked]) -> None:
    """Submit a batch. What the engine raises about one job fails that job alone."""
    now = time.time_ns()
    try:
        streams: list[Stream | Exception] = list(engine.submit([asked.job for asked in batch]))
    except Exception:  # noqa: BLE001 - of one of them; which one shows if each is submitted alone
        streams = [_submitted(engine, asked.job) for asked in batch]
    for asked, stream in zip(batch, streams, strict=True):
        asked.inflight.timeline.batched = now
        if isinstance(stream, Exception):
            if not asked.stream.done():
                asked.stream.set_exception(stream)
        elif asked.stream.cancelled():
            stream.cancel()
        else:
            asked.stream.set_result(stream)


def _submitted(engine: Engine, job: Job) -> Stream | Exception:
    try:
        return engine.submit([job])[0]
    except Exception as error:  # noqa: BLE001 - handed to the request
        return error
