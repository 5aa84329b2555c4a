"""Claims and answers as the agents have them, without a partition."""

from __future__ import annotations

from typing import Any

from app.delivery.inflight import InFlightRequest
from app.delivery.record import REQUESTS, Record
from app.reader.answer import Answer
from app.wire.codec import encode
from app.wire.event import EventType, TokenEvent
from app.wire.request import Request

ASKED_AT = 1_700_000_000_000


def inflight_of(**values: Any) -> InFlightRequest:
    request = Request(**{"request_id": "r1", "user_id": "ann", "prompt": "why?", **values})
    value, headers = encode(request)
    return InFlightRequest(
        Record(REQUESTS, 3, 42, ASKED_AT, request.user_id.encode(), value, tuple(headers)), request, ASKED_AT
    )


def answer_with(*words: str) -> Answer:
    answer = Answer("ann", "r1", "default")
    for index, text in enumerate(words):
        answer.append(TokenEvent(type=EventType.TOKEN, index=index, tokens=(index,), text=text), index, 5)
    return answer
