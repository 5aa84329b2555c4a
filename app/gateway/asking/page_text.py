"""The text of an answer alone, for callers that show what comes.

It is the `text` of the events: neither reasoning nor calls of tools, and no notice. In such a reply nothing tells an
error from a text. So its head waits for the first text: an error before that is the status, and one behind it cuts the
connection, and a reader has a body that is not whole. An answer that was cancelled or could not be finished ends as an
error does: its text alone would look whole.

`data` has one event for a piece of text, a `data:` line for each of its lines, as `EventSource` joins them. It
reconnects for ever to a stream that ends or is cut. So each event's id names the request and the place behind it, and a
reconnect goes on there; behind the end it gets 204, and after an error that error's status, and both stop it. A proxy
may cut what is silent for long, and a reconnect without an id would ask again: the head of `data` leaves after
`STATUS_S` with the first id, and comments follow. An error cuts the connection then, and the reconnect has its status:
it waits for one, however long, since it asks nothing again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import NamedTuple

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from app.gateway.answers.follow import KEEP_ALIVE_S
from app.gateway.answers.sse import KEEP_ALIVE, CutError, EventStream
from app.gateway.asking.answer_stream import (
    RETRY,
    AnswerStreams,
    events_to_done,
    headers_of,
    index_of,
    is_reconnect,
)
from app.gateway.asking.first_events import ended, for_a_status
from app.gateway.asking.gateway import Gateway
from app.gateway.asking.pages import PageBody
from app.gateway.callers.access import Caller
from app.gateway.callers.identity import Identity
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError, error_of, invalid
from app.wire.ids import is_request_id
from models.interface.generation import FinishReason

STATUS_S = 20.0
"""Proxies bear a silence of 30 s and more."""
CONFLICT = 409
_UNFINISHED: Mapping[FinishReason | None, str] = MappingProxyType(
    {
        FinishReason.CANCELLED: "the answer was cancelled",
        FinishReason.PARTIAL: "the answer could not be finished: ask again",
    }
)
_LINE_END = re.compile("\r\n|\r|\n")
_TYPES = {"text": "text/plain", "raw": EventStream.media_type, "data": EventStream.media_type}


class TextPiece(NamedTuple):
    """What a batch of events adds to the text, and the place behind it. The last piece may have none."""

    text: str
    at: int
    is_last: bool


async def pieces_of(gateway: Gateway, user_id: str, request_id: str, after: int = 0) -> AsyncGenerator[TextPiece, None]:
    """The text behind that place, up to the end; a piece without text is a keep-alive. Raises `ApiError` for every
    other end than that of a whole answer.
    """
    at = after
    async with aclosing(events_to_done(gateway, user_id, request_id, after, tells_rest=True)) as batches:
        async for events in batches:
            is_last = bool(events) and events[-1].is_end
            if events:
                at = events[-1].next_index + is_last  # one behind the end, as in the streams of events
            text = "".join(event.text or "" for event in events)
            if is_last and (reason := events[-1].finish_reason) in _UNFINISHED:
                if text:
                    yield TextPiece(text, events[-1].index or 0, is_last=False)
                raise ApiError(str(reason), _UNFINISHED[reason], status=CONFLICT)
            yield TextPiece(text, at, is_last)


class Plain:
    """The text as it comes; it has no place for anything else."""

    head = waiting = b""

    def chunk(self, piece: TextPiece) -> bytes:
        return piece.text.encode()


class Data:
    """Events whose data is the text. A carriage return is a line's end, as every other: an event cannot have it."""

    waiting = KEEP_ALIVE

    def __init__(self, request_id: str, after: int) -> None:
        self._request_id = request_id
        self._is_in_line_end = False
        self.head = RETRY + self._id(after) + b"\n"

    def chunk(self, piece: TextPiece) -> bytes:
        text = piece.text
        if text and self._is_in_line_end:
            text = text.removeprefix("\n")
        self._is_in_line_end = piece.text.endswith("\r") or (self._is_in_line_end and not piece.text)
        if not text and not piece.is_last:
            return self.waiting
        lines = [f"data: {line}\n" for line in _LINE_END.split(text)] if text else []
        return self._id(piece.at) + "".join(lines).encode() + b"\n"

    def _id(self, at: int) -> bytes:
        return f"id: {self._request_id}:{at}\n".encode()


class TextStreams:
    """As `AnswerStreams`, of a page that shows the text alone."""

    def __init__(self, gateway: Gateway, caller: Caller, identity: Identity, form: str) -> None:
        self._gateway = gateway
        self._caller = caller
        self._identity = identity
        self._form = form
        self._streams = AnswerStreams(gateway, caller, identity)

    async def ask(self, http: HttpRequest, body: PageBody, ignored: Sequence[str]) -> Response:
        """Send the request, and reply with the text of its answer. Raises `ApiError`.

        A caller that has read a part already sends nothing again.
        """
        if is_reconnect(http):
            return await self._again(http)
        asked = await self._streams.send(body)
        return await self._opened(http, asked.request_id, 0, headers_of(asked, ignored), STATUS_S)

    async def _again(self, http: HttpRequest) -> Response:
        request_id, _, index = http.headers["last-event-id"].rpartition(":")
        if not is_request_id(request_id):
            raise invalid("Last-Event-ID", "must be the `id` of an event")
        self._gateway.limits.admit_lookup(self._identity)
        after = index_of(index)
        if await self._streams.is_behind_the_end(request_id, after):
            return Response(status_code=204)
        self._gateway.limits.open_stream(self._identity)
        return await self._opened(http, request_id, after, {}, None)

    async def _opened(
        self, http: HttpRequest, request_id: str, after: int, headers: dict[str, str], status_s: float | None
    ) -> Response:
        """Release the stream that is open when the reply ends. `status_s`: when the head of `data` leaves at last."""
        gateway, limits, identity = self._gateway, self._gateway.limits, self._identity
        form = Data(request_id, after) if self._form == "data" else Plain()
        pieces = pieces_of(gateway, identity.user_id, request_id, after)
        first = asyncio.create_task(_first(pieces), name="first text of a page")
        try:
            await for_a_status(http, first, pieces, status_s if form.waiting else None)
        except BaseException:
            limits.close_stream(identity)
            raise

        def closed() -> None:
            first.cancel()
            limits.close_stream(identity)

        chunks = _chunks(form, first, pieces)
        kind = _TYPES[self._form]
        return EventStream(chunks, bounds.STALL_S, gateway.metrics, closed, self._caller.valid_s, headers, kind)


async def _first(pieces: AsyncGenerator[TextPiece, None]) -> TextPiece:
    """The first piece with text, or the last one."""
    piece = await anext(pieces)
    while not piece.text and not piece.is_last:
        piece = await anext(pieces)
    return piece


async def _chunks(
    form: Plain | Data, first: asyncio.Task[TextPiece], pieces: AsyncGenerator[TextPiece, None]
) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(pieces):
            yield form.head
            try:
                while not first.done():
                    yield form.waiting
                    await asyncio.wait({first}, timeout=KEEP_ALIVE_S)
            finally:
                await ended(first)
            yield form.chunk(first.result())
            async for piece in pieces:
                yield form.chunk(piece)
    except ApiError:
        raise CutError from None
    except Exception as failure:  # noqa: BLE001 - the reply has begun, and has no place for an error
        error_of(failure, "the text of a page")
        raise CutError from None
