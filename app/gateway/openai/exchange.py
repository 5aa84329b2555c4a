"""Answer requests in OpenAI's way: as one object, or as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from app.gateway.answers.follow import KEEP_ALIVE_S
from app.gateway.answers.sse import KEEP_ALIVE, EventStream
from app.gateway.asking.first_events import ended, for_a_status
from app.gateway.asking.gateway import Gateway
from app.gateway.asking.parameters import ignored_header
from app.gateway.asking.producer import RecordHeaders
from app.gateway.callers.access import Caller
from app.gateway.callers.identity import Identity
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError, error_of, json_response
from app.gateway.edge.slow_readers import PART_BYTES
from app.gateway.edge.while_connected import while_connected
from app.gateway.openai.completion import ChoiceEvents, Completion, Wording, as_it_is
from app.wire.event import TokenEvent
from app.wire.request import Request

_LOGPROB_BYTES = 160
STATUS_S = 5.0
"""How long a stream waits for its first events before its headers are sent: proxies cut replies that stay silent."""


class Reply(Protocol):
    """The reply to one call, built from the events of its choices, which may progress in any order."""

    def add(self, number: int, events: list[TokenEvent]) -> None:
        """Record the events of one choice for `whole`."""

    def whole(self) -> dict[str, Any]:
        """The complete reply, after all choices have ended."""

    def first_chunks(self) -> Iterable[bytes]: ...

    def chunks(self, number: int, events: list[TokenEvent]) -> Iterable[bytes]:
        """The chunks for these events of one choice; the events contain no error."""

    def last_chunks(self) -> Iterable[bytes]:
        """The last chunks, after all choices have ended."""

    def failed(self, error: ApiError) -> bytes: ...


class Exchange:
    """One call of a caller: its requests are sent, and their answers become the reply. Errors are put into the words
    of its API.

    A caller that leaves before the end cancels the answers, unless `PARLEY_GATEWAY_KEEP` is set.
    """

    def __init__(
        self,
        gateway: Gateway,
        http: HttpRequest,
        caller: Caller,
        identity: Identity,
        ignored: Sequence[str] = (),
        in_callers_words: Wording = as_it_is,
    ) -> None:
        self._gateway = gateway
        self._http = http
        self.caller = caller
        self._identity = identity
        self._ignored = ignored
        self._in_callers_words = in_callers_words

    async def admit(self, asked: Sequence[Request]) -> Sequence[Request]:
        """The requests as they are to be sent; raises `ApiError`."""
        try:
            return await self._gateway.admit(self._identity, asked)
        except ApiError as error:
            raise self._in_callers_words(error) from None

    async def answer(
        self, asked: Sequence[Request], reply: Reply, *, stream: bool | None, headers: RecordHeaders = ()
    ) -> Response:
        """Send requests that were admitted, with these headers of their records. Raises `ApiError`; nothing is sent if
        too many streams are open.
        """
        completion = Completion(self._gateway, asked, headers, self._in_callers_words)
        reply_headers = {"X-Request-Id": asked[0].request_id, **ignored_header(self._ignored)}
        if stream:
            return await self._stream(completion, reply, reply_headers)
        await completion.send()
        await while_connected(self._http, self._read(completion, reply))
        return json_response(reply.whole(), headers=reply_headers)

    async def _read(self, completion: Completion, reply: Reply) -> None:
        """What is large counts while it grows: a hundred choices with all log probabilities are half a gigabyte."""
        size, counted = 0, 0
        with self._gateway.replies.body(self.caller.holder) as held:
            async with aclosing(completion.events()) as events:
                async for number, batch in events:
                    reply.add(number, batch)
                    size += sum(map(_size_in_reply, batch))
                    if size - counted > PART_BYTES:
                        held.add(size - counted)
                        counted = size

    async def _stream(self, completion: Completion, reply: Reply, headers: dict[str, str]) -> Response:
        limits, identity = self._gateway.limits, self._identity
        limits.open_stream(identity)
        try:
            await completion.send()
        except BaseException:
            limits.close_stream(identity)
            raise
        events = completion.events()
        first = asyncio.create_task(_first(events), name="first events of a stream")
        try:
            await for_a_status(self._http, first, events, STATUS_S)
        except BaseException:
            limits.close_stream(identity)
            raise

        def closed() -> None:
            first.cancel()
            limits.close_stream(identity)

        return EventStream(
            _chunks(reply, first, events),
            bounds.STALL_S,
            self._gateway.metrics,
            closed,
            self.caller.valid_s,
            headers,
        )


def _size_in_reply(event: TokenEvent) -> int:
    """About the bytes that a reply keeps of it."""
    logprobs = sum(1 + len(one.top) for one in (*(event.logprobs or ()), *(event.prompt_logprobs or ())))
    calls = sum(len(call.arguments) for call in event.tool_calls or ())
    return len(event.text or "") + len(event.reasoning or "") + calls + _LOGPROB_BYTES * logprobs


async def _first(events: AsyncGenerator[ChoiceEvents, None]) -> ChoiceEvents:
    async for number, batch in events:
        if batch:
            return number, batch
    return 0, []


async def _chunks(
    reply: Reply, first: asyncio.Task[ChoiceEvents], events: AsyncGenerator[ChoiceEvents, None]
) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(events):
            try:
                while not first.done():
                    yield KEEP_ALIVE
                    await asyncio.wait({first}, timeout=KEEP_ALIVE_S)
            finally:
                await ended(first)
            yield b"".join(reply.first_chunks()) + b"".join(reply.chunks(*first.result()))
            async for more in events:
                yield b"".join(reply.chunks(*more)) or KEEP_ALIVE
    except ApiError as error:
        yield reply.failed(error)
        return
    except Exception as failure:  # noqa: BLE001 - the reply has begun, so its error is an event
        yield reply.failed(error_of(failure, "a stream"))
        return
    yield b"".join(reply.last_chunks())
