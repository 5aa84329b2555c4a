"""The trace of a request in a worker: one span from its record to its commit, and one per stage.

    chat MODEL        from the record's timestamp to the commit; OpenTelemetry's conventions for generative AI
      queue           in Kafka, until a worker has the record
      wait            for earlier requests of its conversation and for a slot
      batch           its prompt is built and batched with others
      schedule        in the engine's queue
      prefill         until its first token
      decode          until its last token
      commit          the transaction with its row, turn and offset
    index MODEL       the turn, until it is in Milvus

Spans are created at the end, from timestamps that the request has anyway, so a request that is not sampled costs no
more than reading its headers. A worker that is killed exports nothing; the next owner exports its own spans, marked
`resumed`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from app.delivery.inflight import InFlight, Outcome
from app.delivery.observer import Observer
from app.delivery.record import Record
from app.delivery.resume.answer_log import AnswerLog
from app.settings import Settings
from app.telemetry.tracing import Tracing
from app.wire.codec import trace_headers_of
from app.wire.request import Request
from app.wire.turn import Turn

_MS = 1_000_000


class RequestTraces(Observer):
    def __init__(self, tracing: Tracing, settings: Settings) -> None:
        self._tracing = tracing
        self._settings = settings
        self._spans: WeakKeyDictionary[InFlight, Span] = WeakKeyDictionary()

    def admitted(self, partition: int, inflight: InFlight) -> None:
        model = inflight.accepted.request.model or self._settings.model
        span = self._tracing.start(
            f"chat {model}",
            SpanKind.CONSUMER,
            inflight.trace_headers,
            start_time=inflight.accepted.record.timestamp * _MS,
            attributes=_asked(inflight.accepted.request, model) | self._place(inflight.accepted.record, partition),
        )
        if span.is_recording():
            self._spans[inflight] = span
            inflight.trace_headers = self._tracing.carry(span)

    def answered(self, partition: int, outcome: Outcome) -> None:  # noqa: ARG002
        inflight, answer, end = outcome.inflight, outcome.answer, outcome.end
        if (span := self._spans.pop(inflight, None)) is None:
            return
        now = time.time_ns()
        for name, began, ended in _stretches(inflight, answer, now):
            self._tracing.child(span, name, began, ended, {})
        if answer.first_at is not None:
            span.add_event("first token", timestamp=answer.first_at * _MS)
        span.set_attributes(_attributes(outcome))
        if end.error is not None:
            span.set_status(Status(StatusCode.ERROR, end.error.code))
        span.end(now)

    def slept(self, partition: int, inflight: InFlight) -> None:  # noqa: ARG002
        if (span := self._spans.pop(inflight, None)) is not None:
            span.add_event("asleep")
            span.end()

    def indexed(self, record: Record, turn: Turn, received_ns: int) -> None:
        trace_headers = trace_headers_of(record.headers)
        if not trace_headers:
            return
        attributes = {"gen_ai.operation.name": "embeddings", "gen_ai.conversation.id": turn.conversation_id}
        span = self._tracing.start(
            f"index {turn.model_version}",
            SpanKind.CONSUMER,
            trace_headers,
            start_time=received_ns,
            attributes=attributes | self._place(record, record.partition),
        )
        span.end()

    def _place(self, record: Record, partition: int) -> dict[str, Any]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": self._settings.topic(record.topic),
            "messaging.destination.partition.id": str(partition),
            "messaging.kafka.offset": record.offset,
            "messaging.consumer.group.name": self._settings.group,
        }


def _asked(request: Request, model: str) -> dict[str, Any]:
    """Parameters of the request, never its text."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "parley",
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.request.top_p": request.top_p,
        "gen_ai.request.top_k": request.top_k,
        "gen_ai.request.seed": request.seed,
        "gen_ai.conversation.id": request.conversation_id,
        "gen_ai.response.id": request.request_id,
        "user.id": request.user_id,
        "parley.tenant": request.tenant,
        "parley.priority": request.priority.value,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _attributes(outcome: Outcome) -> dict[str, Any]:
    answer, end, plan = outcome.answer, outcome.end, outcome.answer.plan
    attributes: dict[str, Any] = {
        "gen_ai.response.model": end.model_version,
        "gen_ai.usage.output_tokens": answer.index,
        "parley.resumed": outcome.inflight.accepted.former.answer is not None,
        "parley.route": plan.route,
        "parley.experiment": plan.experiment,
        "parley.arm": plan.arm,
        "parley.cached": plan.cached,
        "parley.taken_over_at": plan.from_index,
    }
    if end.usage is not None:
        attributes["gen_ai.usage.input_tokens"] = end.usage.prompt_tokens
        attributes["gen_ai.usage.cache_read.input_tokens"] = end.usage.cached_tokens
    if end.finish_reason is not None:
        attributes["gen_ai.response.finish_reasons"] = [end.finish_reason.value]
    if end.error is not None:
        attributes["error.type"] = end.error.code
    return {name: value for name, value in attributes.items() if value is not None}


def _stretches(inflight: InFlight, answer: AnswerLog, now: int) -> Iterator[tuple[str, int, int]]:
    """(name, began, ended) in Unix nanoseconds; each begins where its predecessor ended."""
    timeline = inflight.timeline
    # The first token of a resumed answer was written by a former owner.
    first = None if answer.first_at is None or inflight.accepted.former.answer is not None else answer.first_at * _MS
    attributes = None if answer.ended_at is None else answer.ended_at * _MS
    began = inflight.accepted.record.timestamp * _MS
    for name, ended in (
        ("queue", timeline.arrived),
        ("wait", timeline.started),
        ("batch", timeline.batched),
        ("schedule", timeline.admitted),
        ("prefill", first),
        ("decode" if timeline.admitted is not None else "refuse", attributes),
        ("commit", now),
    ):
        if ended is not None:
            yield name, began, max(began, ended)
            began = max(began, ended)
