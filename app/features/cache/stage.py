"""Repeat the answer to an identical request: `[cache]` (app/features/cache/recordings.py).

It stands inside the guard, so recordings hold placeholders and unjudged texts, and each reader's own guard reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from app.answering.run import Run
from app.answering.stage import Feature, Generate, Stage
from app.features.cache.recordings import Recording, ResponseCache
from app.features.host import WorkerParts
from app.policy.file import Policy
from app.wire.event import CACHED
from models.interface.generation import Delta, End, Failure, Job, StreamEvent


class Cache(Feature):
    def __init__(self, recordings: ResponseCache) -> None:
        self.recordings = recordings

    @classmethod
    def of(cls, host: WorkerParts) -> Cache:
        return cls(ResponseCache(host.policy, host.clock))

    @property
    def is_on(self) -> bool:
        return self.recordings.is_on

    def use(self, policy: Policy) -> None:
        self.recordings.use(policy)

    def update(self) -> None:
        self.recordings.update()

    def forget(self, user_id: str) -> None:
        self.recordings.forget(user_id)

    def stage(self, run: Run) -> Stage | None:
        is_repeated = run.accepted.former.plan.cached is not None
        return Cached(run, self.recordings) if is_repeated or self.is_on else None


class Cached(Stage):
    def __init__(self, run: Run, recordings: ResponseCache) -> None:
        super().__init__(run)
        self._recordings = recordings

    async def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        model, request = self.run.model(), self.run.accepted.request
        key = None if model is None else self._recordings.key_of(request, model.model_version, job)
        if key is None:
            events = self._paid(job, then)
        elif (recording := self._recordings.find(key)) is not None:
            events = self._repeated(job, recording, then)
        else:
            events = self._recorded(key, job, then)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _recorded(self, key: bytes, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        with self._recordings.recording(key, self.run.accepted.request, job) as recording:
            try:
                async with aclosing(self._paid(job, then)) as events:
                    async for event in events:
                        recording.add(event)
                        yield event
            finally:
                if self.run.inflight.stop.reason is not None:  # a later request may roll back what is whole here
                    recording.abandon()

    async def _repeated(self, job: Job, recording: Recording, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        """The recording. If that breaks off, the rest is generated behind what has passed; the answer is not free."""
        run, answer = self.run, self.run.answer
        if answer.plan.cached is None:
            await run.replan(msgspec.structs.replace(answer.plan, cached=recording.request_id))
            message = f"the answer to the same request {recording.request_id} is repeated"
            await answer.notice(CACHED, message, {"request_id": recording.request_id})
        stream, passed = recording.follow(), [*job.generated]
        try:
            with run.inflight.stop.listening(stream.cancel), run.reading(stream):
                async for event in stream:
                    if isinstance(event, Delta):
                        passed += event.tokens
                    yield event
                    if isinstance(event, End | Failure):
                        return
        finally:
            self._recordings.stats.saved_tokens += len(job.prompt) + len(passed) - len(job.generated)
            stream.cancel()
        async with aclosing(self._paid(dataclasses.replace(job, generated=tuple(passed)), then)) as events:
            async for event in events:
                yield event

    async def _paid(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        """What is generated after all, as a whole or the rest of it, is not free."""
        plan = self.run.answer.plan
        if plan.cached is not None:
            await self.run.replan(msgspec.structs.replace(plan, cached=None))
        async with aclosing(then(job)) as events:
            async for event in events:
                yield event
