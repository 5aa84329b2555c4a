"""One answer by the Durable Streams protocol, for its clients; read only, as JSON.

https://github.com/durable-streams/durable-streams/blob/main/PROTOCOL.md

An offset is the index after the last event that was read, and one more behind the end: 16 digits, which sort. It is a
position in the log of tokens, so any gateway goes on from it, whatever has died meanwhile. Notices have no position of
their own and are left out. How many tokens an event has depends on when it is read; the tokens behind an offset do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from starlette.responses import Response

from app.gateway.answers.sse import KEEP_ALIVE, EventStream, server_sent
from app.gateway.answers.watch import BATCH
from app.gateway.asking.gateway import Gateway
from app.gateway.callers.access import Caller
from app.gateway.callers.identity import Identity
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError, invalid, json_response
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent

STREAM_HEADERS = ("Stream-Next-Offset", "Stream-Up-To-Date", "Stream-Closed")
_DIGITS = 16
_BEGINNING, _NOW = "-1", "now"
_LONG_POLL_S = 20.0


@dataclass(frozen=True, slots=True)
class _Part:
    """Events from an offset on, and the offset behind them."""

    events: Sequence[TokenEvent]
    after: int
    is_closed: bool

    @property
    def headers(self) -> dict[str, str]:
        values = (_text(self.after), "true", "true")
        named = dict(zip(STREAM_HEADERS, values, strict=True))
        if not self.is_closed:
            del named["Stream-Closed"]
        return {**named, "Cache-Control": "no-store"}

    @property
    def control(self) -> dict[str, object]:
        closed = {"streamClosed": True} if self.is_closed else {}
        return {"streamNextOffset": _text(self.after), "upToDate": True, **closed}


class DurableStream:
    """`identity` is the user whose answer it reads."""

    def __init__(self, gateway: Gateway, caller: Caller, identity: Identity, request_id: str) -> None:
        self._gateway = gateway
        self._caller = caller
        self._identity = identity
        self._request_id = request_id

    async def read(self, offset: str, live: str | None) -> Response:
        """What lies behind the offset; raises `ApiError`."""
        if live not in {None, "long-poll", "sse"}:
            raise invalid("live", "must be long-poll or sse")
        known = await self._written(0 if offset == _NOW else _number(offset))
        part = _Part((), known.after, known.is_closed) if offset == _NOW else known
        if live == "sse":
            self._gateway.limits.open_stream(self._identity)
            return self._stream(part)
        if live == "long-poll" and not part.events:
            part = part if part.is_closed else await self._next(part)
            if not part.events:
                return Response(status_code=204, headers=part.headers)
        return json_response(part.events, 200, part.headers)

    async def _written(self, after: int) -> _Part:
        user, request_id = self._identity.user_id, self._request_id
        answer = await self._gateway.follower.answer(user, request_id)
        if answer is None:
            if self._gateway.sent.conversation(user, request_id) is None:
                raise ApiError(ErrorCode.NOT_FOUND, "no request with this id was found")
            return _Part((), after, is_closed=False)
        events = [*answer.segments, *([] if answer.end is None else [answer.end])]
        return _part([event for event in events if _behind(event) > after], after, is_closed=answer.end is not None)

    async def _next(self, part: _Part) -> _Part:
        """The first events that come behind the part; none if none come for a while."""
        self._gateway.limits.open_stream(self._identity)
        try:
            async with asyncio.timeout(_LONG_POLL_S), aclosing(self._parts(part.after)) as parts:
                async for one in parts:
                    if one.events:
                        return one
        except TimeoutError:
            pass
        finally:
            self._gateway.limits.close_stream(self._identity)
        return part

    def _stream(self, first: _Part) -> EventStream:
        return EventStream(
            self._chunks(first),
            bounds.STALL_S,
            self._gateway.metrics,
            lambda: self._gateway.limits.close_stream(self._identity),
            self._caller.valid_s,
        )

    async def _chunks(self, first: _Part) -> AsyncGenerator[bytes, None]:
        for begin in range(0, len(first.events), BATCH):
            yield server_sent(first.events[begin : begin + BATCH], name="data")
        yield server_sent(first.control, name="control")
        if first.is_closed:
            return
        async with aclosing(self._parts(first.after)) as parts:
            async for part in parts:
                yield _chunk(part) if part.events else KEEP_ALIVE

    async def _parts(self, after: int) -> AsyncGenerator[_Part, None]:
        events = self._gateway.follower.events(self._identity.user_id, self._request_id, after, is_known=True)
        async with aclosing(events) as batches:
            async for batch in batches:
                told = [event for event in batch if event.notice is None]
                part = _part(told, after, is_closed=bool(told) and told[-1].is_end)
                after = part.after
                yield part


def _part(events: Sequence[TokenEvent], after: int, *, is_closed: bool) -> _Part:
    return _Part(events, _behind(events[-1]) if events else after, is_closed)


def _behind(event: TokenEvent) -> int:
    """The offset behind the event."""
    return event.next_index + event.is_end


def _chunk(part: _Part) -> bytes:
    data = server_sent(part.events, name="data") if part.events else b""
    return data + server_sent(part.control, name="control")


def _text(offset: int) -> str:
    return f"{offset:0{_DIGITS}}"


def _number(offset: str) -> int:
    if offset == _BEGINNING:
        return 0
    if len(offset) != _DIGITS or not (offset.isascii() and offset.isdigit()):
        raise invalid("offset", f"must be {_BEGINNING}, {_NOW}, or a Stream-Next-Offset of this stream")
    return int(offset)
