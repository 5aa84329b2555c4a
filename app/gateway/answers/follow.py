"""One reader of one answer, from its position to the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.gateway.answers.archive import Archive
from app.gateway.answers.live import LiveAnswers
from app.gateway.answers.watch import Watch
from app.gateway.request_producer import RequestProducer
from app.wire import ErrorCode, ErrorInfo, EventType, TokenEvent

KEEP_ALIVE_S = 15.0


class Follower:
    def __init__(self, live: LiveAnswers, archive: Archive, request_producer: RequestProducer, wait_s: float) -> None:
        self._live = live
        self._archive = archive
        self._request_producer = request_producer
        self._wait_s = wait_s

    async def events(self, user_id: str, request_id: str, after: int = 0) -> AsyncGenerator[list[TokenEvent], None]:
        """The existing events, then new ones, in batches; an empty batch is a keep-alive.

        Ends with the answer's end, with `not_found`, or without an end event if the gateway stops.
        """
        with self._live.watch(user_id, request_id) as watch:
            watch.position = after
            if not self._request_producer.is_new(user_id, request_id):
                await self._archive.complete(user_id, request_id)
            async with aclosing(self._from(watch, user_id, request_id)) as batches:
                async for batch in batches:
                    yield batch

    async def _from(self, watch: Watch, user_id: str, request_id: str) -> AsyncGenerator[list[TokenEvent], None]:
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + self._wait_s
        while not self._live.closing:
            batch = watch.next_events()
            if batch:
                yield batch
                if watch.ended:
                    return
                continue
            unknown = watch.answer is None and self._request_producer.sent(user_id, request_id) is None
            if unknown and clock() >= give_up_at:
                yield [_not_found(user_id, request_id, watch.position, self._wait_s)]
                return
            patience = min(KEEP_ALIVE_S, give_up_at - clock()) if unknown else KEEP_ALIVE_S
            try:
                async with asyncio.timeout(patience):
                    await watch.changed()
            except TimeoutError:
                yield []


def _not_found(user_id: str, request_id: str, index: int, waited_s: float) -> TokenEvent:
    message = f"no request with this id appeared within {waited_s:g} s"
    return TokenEvent(
        type=EventType.ERROR,
        request_id=request_id,
        user_id=user_id,
        index=index,
        error=ErrorInfo(ErrorCode.NOT_FOUND, message),
    )
