"""Responses that outlive the call that has created them: what they were asked for is in `requests`, what they say in
`tokens`.

Any gateway retrieves, streams, cancels and deletes them. A response lives as long as both topics keep it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from app.gateway.answers.sse import KEEP_ALIVE, EventStream
from app.gateway.asking.gateway import Gateway
from app.gateway.callers.access import Caller
from app.gateway.callers.identity import Identity
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError, error_of
from app.gateway.openai.responses_body import named_by
from app.gateway.openai.responses_events import ResponseEvents
from app.gateway.openai.responses_given import Given, given_in, response_id
from app.gateway.openai.responses_reply import chunk
from app.reader import Answer
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent
from app.wire.request import Request
from app.wire.turn import Turn
from models.interface.generation import FinishReason

_CANCEL_S = 10.0
"""How long a cancel waits for the answer's end."""
_LONGEST_ID = 400
"""Characters of an id in an error: a conversation's name, a request's, and what joins them."""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    request: Request
    given: Given

    @property
    def name(self) -> str:
        return response_id(self.request)

    @property
    def is_background(self) -> bool:
        return bool(self.given.body.background)

    def events(self) -> ResponseEvents:
        return ResponseEvents(self.request, self.given)


class StoredResponses:
    """Those of one user; `caller` acts for it."""

    def __init__(self, gateway: Gateway, caller: Caller, identity: Identity) -> None:
        self._gateway = gateway
        self._caller = caller
        self._identity = identity

    async def create(self, request: Request, given: Given) -> StoredResponse:
        """Send a request that was admitted; raises `ApiError`."""
        header = given.header
        await self._gateway.request_producer.ask(request, is_new=True, headers=[header])
        self._gateway.asked.remember(request, [header])
        return StoredResponse(request, given)

    async def find(self, name: str) -> StoredResponse:
        """The response of this id; raises `ApiError`: `not_found` if this user has none, or it has gone."""
        named = named_by(name)
        await self.current()
        stored = None if named is None else await self.of_request(named[1])
        if stored is None or stored.name != name:
            message = f"Response with id {name[:_LONGEST_ID]!r} not found."
            raise ApiError(ErrorCode.NOT_FOUND, message, param="response_id")
        return stored

    async def current(self) -> None:
        """Wait for deletions and erasures that were told before, at whichever gateway."""
        await self._gateway.erasures.current(self._identity.user_id)

    async def of_request(self, request_id: str) -> StoredResponse | None:
        """The response that this request was created as; None if this user has none, or it has gone."""
        asked = await self._gateway.asked.find(self._identity.user_id, request_id)
        given = None if asked is None else given_in(asked.headers)
        if asked is None or given is None or given.body.store is False:
            return None
        return StoredResponse(asked.request, given)

    def turns(self) -> AsyncGenerator[Turn, None]:
        """Those of the user's conversations; raises `ApiError`."""
        return self._gateway.turns(self._identity.user_id)

    async def described(self, stored: StoredResponse) -> dict[str, Any]:
        """The response as far as it is written; `parley` says for what it waits. Raises `ApiError`."""
        request, events = stored.request, stored.events()
        answer = await self._gateway.follower.answer(request.user_id, request.request_id)
        if answer is not None:
            _check_whole(answer, stored)
            for event in answer.events:
                for _ in events.read(event):
                    pass
        response = events.response
        waiting = self._gateway.waiting
        if not events.has_ended and (waits := await waiting.of_request(request.user_id, request.request_id)):
            response["parley"]["waiting"] = [wait.details for wait in waits.waits]
        return response

    async def cancel(self, stored: StoredResponse) -> dict[str, Any]:
        """The response after its end, or in progress if that takes longer; raises `ApiError`."""
        if not stored.is_background:
            raise _cannot_cancel("a synchronous response; only background responses can be cancelled")
        request = stored.request
        answer = await self._gateway.follower.answer(request.user_id, request.request_id)
        if answer is None or answer.end is None:
            await self._gateway.request_producer.cancel(request.user_id, request.request_id)
            await self._until_ended(request)
        elif answer.end.finish_reason is not FinishReason.CANCELLED:
            raise _cannot_cancel("a response that has ended")
        return await self.described(stored)

    async def _until_ended(self, request: Request) -> None:
        events = self._gateway.follower.events(request.user_id, request.request_id, is_known=True)
        try:
            async with asyncio.timeout(_CANCEL_S), aclosing(events):
                async for batch in events:
                    if batch and batch[-1].is_end:
                        return
        except TimeoutError:
            return

    async def delete(self, stored: StoredResponse) -> None:
        """Serve it no more, at any gateway, and cancel it if it is in progress; raises `ApiError`."""
        user_id, request_id = stored.request.user_id, stored.request.request_id
        await self._gateway.request_producer.withdraw(user_id, request_id)
        self._gateway.asked.withdraw(user_id, request_id)

    async def stream(self, stored: StoredResponse, after: int) -> EventStream:
        """Its events behind the sequence number `after`; -1 for all. Raises `ApiError`."""
        request = stored.request
        answer = await self._gateway.follower.answer(request.user_id, request.request_id)
        if answer is not None:
            _check_whole(answer, stored)
        self._gateway.limits.open_stream(self._identity)
        return self._opened(stored, after, {})

    async def create_streaming(self, request: Request, given: Given, headers: Mapping[str, str]) -> EventStream:
        """Send a request that was admitted, and reply with its events. Raises `ApiError`; nothing is sent if too many
        streams are open.
        """
        self._gateway.limits.open_stream(self._identity)
        try:
            stored = await self.create(request, given)
        except BaseException:
            self._gateway.limits.close_stream(self._identity)
            raise
        return self._opened(stored, -1, headers)

    def _opened(self, stored: StoredResponse, after: int, headers: Mapping[str, str]) -> EventStream:
        return EventStream(
            _chunks(self._gateway, stored, after),
            bounds.STALL_S,
            self._gateway.metrics,
            lambda: self._gateway.limits.close_stream(self._identity),
            self._caller.valid_s,
            headers,
        )


def _cannot_cancel(what: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"Cannot cancel {what}.", param="response_id")


def _check_whole(answer: Answer, stored: StoredResponse) -> None:
    """Raise `ApiError` if events have left `tokens`: what is left has other sequence numbers."""
    end = answer.end
    is_of_turns = end is not None and not answer.segments and not end.index and bool(end.text)
    if answer.missing or is_of_turns:
        raise ApiError(ErrorCode.NOT_FOUND, f"Response with id {stored.name!r} has expired.", param="response_id")


class _Retracted(Exception):  # noqa: N818 - no error of ours
    """A part of the answer that the client has is no part of it."""


async def _chunks(gateway: Gateway, stored: StoredResponse, after: int) -> AsyncGenerator[bytes, None]:
    """The events behind `after`. What makes this gateway wait is a comment; what it cannot do ends the stream without
    an end, and the client goes on from its last sequence number, here or elsewhere.
    """
    while True:
        stream = _Numbered(stored, after)
        yield stream.begin() or KEEP_ALIVE
        try:
            async with aclosing(_batches(gateway, stored)) as batches:
                async for batch in batches:
                    yield stream.read(batch) or KEEP_ALIVE
        except _Retracted:
            yield b": a part of the response was retracted; read it again from its beginning\n\n"
            return
        except ApiError as error:
            after = stream.last
            yield f": {error.message}\n\n".encode()
            if error.retry_after_s is None:
                return
            await asyncio.sleep(error.retry_after_s)
        except Exception as failure:  # noqa: BLE001 - what one answer holds ends its stream only
            yield f": {error_of(failure, 'a stream').message}\n\n".encode()
            return
        else:
            return


def _batches(gateway: Gateway, stored: StoredResponse) -> AsyncGenerator[list[TokenEvent], None]:
    return gateway.follower.events(stored.request.user_id, stored.request.request_id, is_known=True)


class _Numbered:
    """The events of a response behind the sequence number `last`, which is the client's."""

    def __init__(self, stored: StoredResponse, last: int) -> None:
        self.last = last
        self._events = stored.events()
        self._position = 0

    def begin(self) -> bytes:
        return self._chunk(self._events.begin())

    def read(self, batch: list[TokenEvent]) -> bytes:
        chunks = []
        for event in batch:
            if event.notice is None:
                if (event.index or 0) < self._position:
                    raise _Retracted
                self._position = event.next_index
                chunks.append(self._chunk(self._events.read(event)))
        return b"".join(chunks)

    def _chunk(self, events: Any) -> bytes:
        chunks = []
        for event in events:
            if event["sequence_number"] > self.last:
                self.last = event["sequence_number"]
                chunks.append(chunk(event))
        return b"".join(chunks)
