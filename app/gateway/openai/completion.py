"""One chat completion: its requests, one per choice, sent and followed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

from app.gateway.asking.answer_stream import events_to_done
from app.gateway.asking.gateway import Gateway
from app.gateway.asking.producer import RecordHeaders
from app.gateway.edge.errors import ApiError
from app.wire.error import ErrorCode
from app.wire.event import DEGRADED, FALLBACK, TokenEvent
from app.wire.request import Request

T = TypeVar("T")

_SHOWN = {DEGRADED, FALLBACK}
"""Notices that the reply names."""

ChoiceEvents = tuple[int, list[TokenEvent]]
Wording = Callable[[ApiError], ApiError]
"""An error in the words of the caller's API."""


def as_it_is(error: ApiError) -> ApiError:
    return error


class Completion:
    """Different workers answer the choices at different speeds. If one fails, the others are cancelled.

    A caller that leaves before the end cancels all, unless `PARLEY_GATEWAY_KEEP` is set. If one waits for longer than
    `PARLEY_GATEWAY_ASLEEP_S`, the caller gets the error `waiting`, and all go on.
    """

    def __init__(
        self,
        gateway: Gateway,
        requests: Sequence[Request],
        headers: RecordHeaders = (),
        in_callers_words: Wording = as_it_is,
    ) -> None:
        self._gateway = gateway
        self._in_callers_words = in_callers_words
        self._headers = headers
        self._requests = requests
        self._open = set(range(len(requests)))

    async def send(self) -> None:
        """Raises `ApiError`."""
        asks = []
        for request in self._requests:
            asks.append(
                asyncio.create_task(self._gateway.request_producer.ask(request, is_new=True, headers=self._headers))
            )
            await asyncio.sleep(0)  # each is encoded in a step of its own
        sent = await asyncio.gather(*asks, return_exceptions=True)
        failed = [one for one in sent if isinstance(one, BaseException)]
        if failed:
            if len(failed) < len(sent):
                await self._cancel()
            raise failed[0]
        for request in self._requests if self._headers else ():  # a response: its items may be referred to
            self._gateway.asked.remember(request, tuple(self._headers))

    async def events(self) -> AsyncGenerator[ChoiceEvents, None]:
        """The events of each choice up to its `done`, with its number; an empty list is a keep-alive.

        Raises `ApiError` for every other end.
        """
        asleep_s = self._gateway.settings.gateway_asleep_s
        streams = [
            events_to_done(self._gateway, one.user_id, one.request_id, notices=_SHOWN, asleep_s=asleep_s)
            for one in self._requests
        ]
        try:
            async with aclosing(merged(streams)) as events:
                async for number, batch in events:
                    if batch and batch[-1].is_end:
                        self._open.discard(number)
                    yield number, batch
        except ApiError as error:
            if len(self._requests) > 1 and error.code != ErrorCode.WAITING:
                await self._cancel()
            raise self._in_callers_words(error) from None
        except (asyncio.CancelledError, GeneratorExit):
            # The caller has left. The cancels are sent without it.
            if self._open and not self._gateway.settings.gateway_keep:
                self._gateway.spawn(self._cancel())
            raise

    async def _cancel(self) -> None:
        """Cancel the open choices. The error is reported already; a cancel that fails only wastes the rest of an
        answer.
        """
        request_producer = self._gateway.request_producer
        left = [self._requests[number] for number in sorted(self._open)]
        cancels = [request_producer.cancel(request.user_id, request.request_id) for request in left]
        for failure in await asyncio.gather(*cancels, return_exceptions=True):
            if isinstance(failure, BaseException) and not isinstance(failure, ApiError):
                raise failure


async def merged(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """The items of all streams with the stream's number, in order of arrival; close it if you leave it early."""
    waiting: dict[asyncio.Task[T | None], int] = {}
    try:
        for number, stream in enumerate(streams):
            waiting[asyncio.create_task(_next(stream))] = number
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number, item = waiting.pop(task), task.result()
                if item is not None:
                    yield number, item
                    waiting[asyncio.create_task(_next(streams[number]))] = number
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for stream in streams:
            await stream.aclose()


async def _next(stream: AsyncGenerator[T, None]) -> T | None:
    return await anext(stream, None)
