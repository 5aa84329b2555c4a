"""The reply to `POST /v1/responses` while its caller waits: one object, or a stream of typed events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.gateway.answers.sse import server_sent
from app.gateway.edge.errors import ApiError
from app.gateway.openai.responses_events import Event, ResponseEvents
from app.gateway.openai.responses_given import Given
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent
from app.wire.request import Request


class ResponsesReply:
    """`add` and `chunks` feed the same events, so both forms have the same content."""

    def __init__(self, request: Request, given: Given) -> None:
        self._events = ResponseEvents(request, given)
        self._has_begun = False

    def add(self, number: int, events: list[TokenEvent]) -> None:  # noqa: ARG002 - there is one choice
        for event in events:
            for _ in self._events.read(event):
                pass

    def whole(self) -> dict[str, Any]:
        return self._events.response

    def first_chunks(self) -> Iterator[bytes]:
        self._has_begun = True
        yield from map(chunk, self._events.begin())

    def chunks(self, number: int, events: list[TokenEvent]) -> Iterator[bytes]:  # noqa: ARG002
        for event in events:
            yield from map(chunk, self._events.read(event))

    def last_chunks(self) -> Iterator[bytes]:
        return iter(())

    def failed(self, error: ApiError) -> bytes:
        first = b"" if self._has_begun else b"".join(self.first_chunks())
        if error.code == ErrorCode.WAITING:
            return first + chunk(self._events.left(error.code, error.message))
        return first + b"".join(map(chunk, self._events.fail(error.code, error.message)))


def chunk(event: Event) -> bytes:
    return server_sent(event, name=event["type"])
