"""The events of one answer as server-sent events; an event's `id` is the index after it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from app.gateway.answers.sse import KEEP_ALIVE, EventStream, server_sent
from app.gateway.asking.ask import AskBody
from app.gateway.asking.gateway import Gateway
from app.gateway.asking.parameters import ignored_header
from app.gateway.callers.access import Caller
from app.gateway.callers.identity import Identity
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError, error_of, invalid, refused
from app.wire.error import ErrorCode
from app.wire.event import WAITING, EventType, Notice, TokenEvent
from app.wire.ids import is_request_id
from app.wire.request import Request

Batches = AsyncGenerator[list[TokenEvent], None]

LARGEST_INDEX = 2**53
RETRY = b"retry: 1000\n\n"
_WAITS_ON = b"retry: 10000\n\n"
"""Behind the notice with which a stream ends: an `EventSource` comes again, and most likely the answer waits then."""
_ASK_EVERY_S = 60.0
"""How often a silent stream that ends with that notice asks whether the answer sleeps."""


class AnswerStreams:
    """Opens streams for one caller; `identity` is the user whose answers it reads."""

    def __init__(self, gateway: Gateway, caller: Caller, identity: Identity) -> None:
        self._gateway = gateway
        self._caller = caller
        self._identity = identity

    async def ask(self, http: HttpRequest, body: AskBody, ignored: Sequence[str]) -> Response:
        """Send the request, and reply with its events. Raises `ApiError`; nothing is sent if too many streams are open.

        A caller that has read a part already sends nothing again.
        """
        if is_reconnect(http):
            return await self._again(http, body.request_id)
        asked = await self.send(body)
        # A comment leaves with the headers: an answer that waits shows its client that it does.
        return self._opened(asked.request_id, 0, RETRY + KEEP_ALIVE, headers_of(asked, ignored))

    async def send(self, body: AskBody) -> Request:
        """Send the request, with a stream that is open, which is the caller's to close. Raises `ApiError`; nothing is
        sent if too many streams are open.
        """
        gateway, limits = self._gateway, self._gateway.limits
        store, conversation = gateway.settings.gateway_store, self._caller.conversation
        asked = body.request(self._identity, store=store, conversation=conversation)
        limits.open_stream(self._identity)
        try:
            (asked,) = await gateway.admit(self._identity, [asked])
            await gateway.request_producer.ask(asked, is_new=body.request_id is None)
        except BaseException:
            limits.close_stream(self._identity)
            raise
        return asked

    async def _again(self, http: HttpRequest, request_id: str | None) -> Response:
        if not is_request_id(request_id):
            raise invalid("request_id", "a reconnect needs the request_id with which the stream was opened")
        self._gateway.limits.admit_lookup(self._identity)
        return await self.follow(request_id, index_after(http))

    async def follow(self, request_id: str, after: int, *, until_waiting: bool = False) -> Response:
        """The events behind the index `after`; raises `ApiError`. `until_waiting`: they end with the notice of a wait.

        A reconnect of an `EventSource` that has the end gets 204, which stops it. The last id of a stream is therefore
        one behind the end.
        """
        if await self.is_behind_the_end(request_id, after):
            return Response(status_code=204)
        self._gateway.limits.open_stream(self._identity)
        return self._opened(request_id, after, RETRY, {}, until_waiting=until_waiting)

    async def is_behind_the_end(self, request_id: str, after: int) -> bool:
        if not after:
            return False
        answer = await self._gateway.follower.answer(self._identity.user_id, request_id)
        return answer is not None and answer.end is not None and after > answer.end.next_index

    def _opened(
        self, request_id: str, after: int, head: bytes, headers: Mapping[str, str], *, until_waiting: bool = False
    ) -> EventStream:
        batches = self._gateway.follower.events(self._identity.user_id, request_id, after)
        if until_waiting:
            batches = _until_waiting(self._gateway, self._identity.user_id, request_id, batches)
        return EventStream(
            _chunks(batches, head),
            bounds.STALL_S,
            self._gateway.metrics,
            lambda: self._gateway.limits.close_stream(self._identity),
            self._caller.valid_s,
            headers,
        )


def wants_events(request: HttpRequest) -> bool:
    """Whether the caller prefers server-sent events to JSON."""
    qualities: dict[str, float] = {}
    for one in request.headers.get("accept", "").split(","):
        kind, *parameters = (part.strip().lower() for part in one.split(";"))
        quality = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        qualities[kind] = float(quality) if quality.replace(".", "", 1).isdecimal() else 0.0
    events = qualities.get(EventStream.media_type, 0.0)
    return events > 0 and events >= qualities.get("application/json", 0.0)


def headers_of(asked: Request, ignored: Sequence[str]) -> dict[str, str]:
    """Of the reply to a request that was sent."""
    location = f"/v1/requests/{asked.request_id}"
    return {"Location": location, "X-Request-Id": asked.request_id, **ignored_header(ignored)}


def is_reconnect(request: HttpRequest) -> bool:
    """Whether the caller has read a part of this stream already."""
    return bool(request.headers.get("last-event-id"))


def index_after(request: HttpRequest, starting_after: str | None = None) -> int:
    """Where the caller goes on, by `Last-Event-ID` or `starting_after`; raises `ApiError`."""
    text = request.headers.get("last-event-id") or starting_after
    return 0 if text is None else index_of(text)


def index_of(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > LARGEST_INDEX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "starting_after: must be the `id` of an event", param="starting_after"
        )
    return int(text)


async def events_to_done(
    gateway: Gateway,
    user_id: str,
    request_id: str,
    after: int = 0,
    notices: Collection[str] = (),
    *,
    tells_rest: bool = False,
    asleep_s: float = math.inf,
) -> AsyncGenerator[list[TokenEvent], None]:
    """The events of the answer and these notices, up to its `done`; an empty list is a keep-alive.

    Raises `ApiError` for every other end, and where a part is retracted that its reader has. `tells_rest`: what came
    together with an error is told before it. An answer that has waited for `asleep_s` is left with the error `waiting`:
    at the next keep-alive, or when the gateway stops.
    """
    position, asleep_at, clock = after, math.inf, asyncio.get_running_loop().time
    async with aclosing(gateway.follower.events(user_id, request_id, after)) as batches:
        async for batch in batches:
            if batch:
                asleep_at = clock() + asleep_s if waits(batch) else math.inf
            elif clock() >= asleep_at:
                raise _waiting(request_id)
            events = [event for event in batch if event.notice is None or event.notice.code in notices]
            for number, event in enumerate(events):
                if event.error is not None:
                    if tells_rest:
                        yield events[:number]
                    raise refused(event.error.code, event.error.message)
                if (event.index or 0) < position:
                    raise _elsewhere(request_id, "a part of the answer was retracted")
                position = event.next_index
            yield events
            if events and events[-1].is_end:
                return
    if asleep_at < math.inf:
        raise _waiting(request_id)
    raise _elsewhere(request_id, "this gateway is shutting down")


def _waiting(request_id: str) -> ApiError:
    location = f"/v1/requests/{request_id}"
    return ApiError(ErrorCode.WAITING, f"the answer waits, and goes on; it is at {location}", location=location)


def _elsewhere(request_id: str, why: str) -> ApiError:
    message = f"{why}; the answer is at /v1/requests/{request_id}"
    return ApiError(ErrorCode.UNAVAILABLE, message, retry_after_s=1)


async def _chunks(batches: Batches, head: bytes) -> AsyncGenerator[bytes, None]:
    yield head
    try:
        async with aclosing(batches):
            last: list[TokenEvent] = []
            async for last in batches:
                yield b"".join(map(_chunk, last)) or KEEP_ALIVE
            if waits(last):
                yield _WAITS_ON
    except ApiError as error:
        yield _failed(error)
    except Exception as failure:  # noqa: BLE001 - what one answer holds ends its stream only
        yield _failed(error_of(failure, "a stream"))


async def _until_waiting(gateway: Gateway, user_id: str, request_id: str, batches: Batches) -> Batches:
    """The events, at most up to the notice of a wait. One that `tokens` has lost is known from the topic `waits`."""
    loop = asyncio.get_running_loop()
    ask_at = loop.time()
    async with aclosing(batches):
        async for batch in batches:
            events = batch
            if not batch and loop.time() >= ask_at:
                ask_at = loop.time() + _ASK_EVERY_S
                events = await _notices_of(gateway, user_id, request_id)
            yield events
            if waits(events):
                return


async def _notices_of(gateway: Gateway, user_id: str, request_id: str) -> list[TokenEvent]:
    """Of what the answer waits for, if it sleeps."""
    record = await gateway.waiting.of_request(user_id, request_id)
    return (
        []
        if record is None
        else [
            TokenEvent(
                type=EventType.NOTICE,
                user_id=user_id,
                request_id=request_id,
                conversation_id=record.conversation_id,
                notice=Notice(WAITING, f"the answer waits for {wait.name or 'its time'}", dict(wait.details)),
            )
            for wait in record.waits
        ]
    )


def waits(batch: Sequence[TokenEvent]) -> bool:
    """Whether the answer waits behind these events."""
    return bool(batch) and batch[-1].notice is not None and batch[-1].notice.code == WAITING


def _failed(error: ApiError) -> bytes:
    """The reply has begun. Without an end event the client reconnects after a while."""
    return f": {error.message}\nretry: {int((error.retry_after_s or 5) * 1000)}\n\n".encode()


def _chunk(event: TokenEvent) -> bytes:
    if event.type is EventType.NOTICE:
        return server_sent(event)
    # After the end, an id without data: an `EventSource` keeps it, and shows no event.
    behind = b"id: %d\n\n" % (event.next_index + 1) if event.is_end else b""
    return server_sent(event, event_id=event.next_index) + behind
