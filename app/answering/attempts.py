"""The attempts to answer a replayed request, and its quarantine, as the outermost stage of its answer.

The protocol is in app/delivery/resume/quarantine.py. An attempt is recorded before anything is decided, and again when
an answer goes on behind a failure or a round of calls. A fresh request has none; pipeline.py lets it wait for suspects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from app.answering.kept import Kept
from app.answering.run import RequestRefused, Run
from app.answering.stage import Decide, Generate, Stage
from app.delivery.accepted import Former
from app.delivery.dead_letters import quiet_letter_of
from app.delivery.resume.quarantine import MOST_ATTEMPTS, Isolation, pause_before, write_attempt
from app.wire.error import ErrorCode, WireError
from app.wire.event import Plan
from models.interface.generation import Delta, Job, StreamEvent

log = logging.getLogger(__name__)

_QUARANTINED = (
    f"{MOST_ATTEMPTS} workers in a row were lost while they ran this request before its next token; "
    "it is not tried again"
)


class Attempting(Stage):
    """Stands around the stages of all features: what is recorded first survives whatever they do to the worker."""

    def __init__(self, run: Run, isolation: Isolation) -> None:
        super().__init__(run)
        self._isolation = isolation
        self._is_quarantined = False

    def is_decided(self, former: Former) -> bool:
        del former
        return False

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        run = self.run
        if run.inflight.attempts.lost >= MOST_ATTEMPTS:
            self._is_quarantined = True
            log.error("partition %s: request %s is quarantined: %s", run.partition.number, run.key, _QUARANTINED)
            raise RequestRefused(ErrorCode.ENGINE_ERROR, _QUARANTINED)
        run.check()
        await self._begin()
        run.check()
        return await then(plan)

    async def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        await self._begin()
        async with aclosing(then(job)) as events:
            async for event in events:
                yield event
                if isinstance(event, Delta):  # it is written
                    self.run.inflight.attempts.end_beginning()

    async def _begin(self) -> None:
        """Begin, or go on with, an attempt to continue the answer from its next token."""
        run, index, count = self.run, self.run.answer.index, self.run.inflight.attempts
        is_recorded = count.is_recorded and count.from_index == index
        if is_recorded and count.is_beginning:
            return
        if count.from_index != index:  # the answer has grown
            count.from_index, count.lost = index, 0
        count.end_beginning()
        await self._wait_apart()
        count.beginning = await self._isolation.enter(count.lost + 1)
        if not is_recorded:
            count.is_recorded = True
            run.partition.begun[run.key] = count.lost + 1
            await write_attempt(run.partition.ownership.token_log, run.inflight, count.lost + 1)

    async def _wait_apart(self) -> None:
        """Keep the attempts of a suspect apart (quarantine.py, 5). One that is stopped has nothing to wait for."""
        run, count = self.run, self.run.inflight.attempts
        pause_s = pause_before(count.lost + 1, count.lost_at, run.partition.ownership.clock.now())
        if pause_s <= 0:
            return
        stopped = asyncio.Event()
        async with run.partition.lanes.without_slot():
            with run.inflight.stop.listening(lambda _reason: stopped.set()), suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await stopped.wait()

    def leave(self, kept: Kept) -> Kept:
        if not self._is_quarantined:
            return kept
        error = WireError(ErrorCode.ENGINE_ERROR, _QUARANTINED, request_id=self.run.accepted.request.request_id)
        return kept.with_output(quiet_letter_of(self.run.accepted.record, error, self.run.settings))
