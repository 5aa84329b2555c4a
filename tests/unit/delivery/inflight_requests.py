"""Requests in flight, and what former owners have left of them, without a partition."""

from __future__ import annotations

from typing import Any

from app.delivery.accepted import Accepted, Former
from app.delivery.inflight import InFlight, Outcome
from app.delivery.record import REQUESTS, Record
from app.delivery.resume.answer_log import AnswerLog
from app.reader.rule import Answer
from app.wire.codec import encode
from app.wire.event import NO_PLAN, EventType, Plan, TokenEvent
from app.wire.request import Request

ASKED_AT = 1_700_000_000_000
NEW = Former()


def inflight_of(former: Former = NEW, at: int = ASKED_AT, **values: Any) -> InFlight:
    request = Request(**{"request_id": "r1", "user_id": "ann", "prompt": "why?", **values})
    value, headers = encode(request)
    record = Record(REQUESTS, 3, 42, ASKED_AT, request.user_id.encode(), value, tuple(headers))
    return InFlight(Accepted(record, request, at, former))


def answer_with(*words: str, model_version: str | None = None) -> Answer:
    answer = Answer("ann", "r1", "default")
    for index, text in enumerate(words):
        event = TokenEvent(type=EventType.TOKEN, index=index, tokens=(index,), text=text, model_version=model_version)
        answer.append(event)
    return answer


def outcome_of(inflight: InFlight, end: TokenEvent, *, plan: Plan = NO_PLAN, spent: int = 0, **log: Any) -> Outcome:
    """The committed request, whose answer has this plan, and of its log these attributes alone."""
    answer = AnswerLog.__new__(AnswerLog)
    answer.plan = plan
    for name, value in log.items():
        setattr(answer, name, value)
    inflight.answer = answer
    return Outcome(inflight=inflight, answer=answer, end=end, spent=spent)
