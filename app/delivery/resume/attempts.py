"""Record each attempt of a replayed request before anything of it can fail (quarantine.py)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from app.delivery.resume.quarantine import Isolation, pause_before
from app.wire.event import ATTEMPT, EventType, Notice, TokenEvent

if TYPE_CHECKING:
    from app.delivery.inflight import InFlightRequest
    from app.delivery.partition import Partition
    from app.delivery.resume.tokens import TokenLog


class Attempts:
    """The attempts of one worker's requests."""

    def __init__(self) -> None:
        self._isolation = Isolation()

    async def begin(self, partition: Partition, inflight: InFlightRequest, index: int) -> None:
        """Begin, or go on with, an attempt to continue the answer from the token `index`.

        A request that was not in the log before this ownership has no attempts: it only waits for a suspect.
        """
        if not inflight.replayed:
            await self._isolation.pass_suspect()
            return
        is_recorded = inflight.is_attempting and inflight.attempts_from == index
        if is_recorded and inflight.is_beginning:
            return
        if inflight.attempts_from != index:  # the answer has grown
            inflight.attempts_from, inflight.lost_attempts = index, 0
        inflight.has_begun()
        await self._wait_apart(partition, inflight)
        inflight.beginning = await self._isolation.enter(inflight.lost_attempts + 1)
        if not is_recorded:
            inflight.is_attempting = True
            partition.begun[inflight.key] = inflight.lost_attempts + 1
            await write_attempt(partition.ownership.tokens, inflight, inflight.lost_attempts + 1)

    async def interrupt(self, partition: Partition, inflight: InFlightRequest) -> None:
        """Take the attempt back while the request only waits: a worker that is lost meanwhile is not its fault."""
        inflight.has_begun()
        if inflight.is_attempting:
            inflight.is_attempting = False
            await write_attempt(partition.ownership.tokens, inflight, inflight.lost_attempts)

    @staticmethod
    async def _wait_apart(partition: Partition, inflight: InFlightRequest) -> None:
        """Keep the attempts of a suspect apart (quarantine.py, 5). One that is stopped has nothing to wait for."""
        pause_s = pause_before(inflight.lost_attempts + 1, inflight.lost_at, partition.ownership.clock.now())
        if pause_s <= 0:
            return
        stopped = asyncio.Event()
        with (
            partition.lanes.without_slot(),
            inflight.stop.listening(lambda _reason: stopped.set()),
            suppress(TimeoutError),
        ):
            async with asyncio.timeout(pause_s):
                await stopped.wait()


async def write_attempt(tokens: TokenLog, inflight: InFlightRequest, number: int) -> None:
    """Record the number of attempts, and return once the broker has it."""
    request = inflight.request
    event = TokenEvent(
        type=EventType.NOTICE,
        request_id=request.request_id,
        user_id=request.user_id,
        conversation_id=request.conversation_id,
        index=inflight.attempts_from,
        notice=Notice(ATTEMPT, "the request is tried again", {"attempt": number}),
    )
    await tokens.delivered([await tokens.send(event, inflight.record.key, inflight.trace_headers)])
