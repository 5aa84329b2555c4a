"""The trace of a request in a worker, by OpenTelemetry's conventions for generative AI, v0.1.0.

    invoke_agent AGENT        of an answer that may call tools: from the request to the commit
      process requests        what one worker does with one record of it, to the commit or to its sleep
        queue                 in Kafka, until a worker has the record
        wait                  for earlier requests of its conversation and for a slot
        retrieval COLLECTION  of older turns
        commit                the transaction with its row, turn and offset
      chat MODEL              a round of the model
        batch                 its prompt is built and batched with others
        schedule              in the engine's queue
        prefill               until its first token
        decode                until its last token
      approval TOOL           until somebody has decided, or nobody in time; linked to the decision
      execute_tool TOOL       from the record of the call to its result
      invoke_agent AGENT      of an agent that was asked, with all of this inside
    index MODEL               the turn, until it is in Milvus

Of other answers there is no `invoke_agent`, and `chat` stands under `process requests`.

Spans are made at the end, from timestamps that the request has anyway, so a request that is not sampled costs no more
than reading its headers. Their ids follow from the answer (app/features/answer_trace.py). A worker that is killed
exports no open spans: who takes an answer over exports the part that it knows of the former owner, marked
`parley.taken_over`, and links its own to it. A part that wakes is linked to the one that fell asleep.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry.trace import SpanKind, Status, StatusCode

from app.delivery.accepted import Accepted
from app.delivery.inflight import InFlight, Outcome
from app.delivery.observer import Observer
from app.delivery.record import REQUESTS, Record
from app.delivery.resume.answer_log import AnswerLog
from app.features.answer_steps import AnswerStep, StepKind
from app.features.answer_trace import AnswerTrace
from app.settings import Settings
from app.telemetry.open_spans import OpenSpan
from app.telemetry.tracing import Tracing
from app.wire.codec import decode, trace_headers_of
from app.wire.error import WireError
from app.wire.request import Request
from app.wire.tools import ToolMode
from app.wire.turn import Turn

_MS = 1_000_000
_PROVIDER = {"gen_ai.provider.name": "parley"}


@dataclass(slots=True)
class _Part:
    """`is_agent`: there is a span of the whole answer above it, which names the `agent`."""

    span: OpenSpan
    trace: AnswerTrace
    is_agent: bool
    agent: str | None
    searches: list[AnswerStep] = field(default_factory=list)


class RequestTraces(Observer):
    def __init__(self, tracing: Tracing, settings: Settings) -> None:
        self._tracing = tracing
        self._settings = settings
        self._parts: WeakKeyDictionary[InFlight, _Part] = WeakKeyDictionary()

    def admitted(self, partition: int, inflight: InFlight) -> None:
        accepted = inflight.accepted
        trace = AnswerTrace.of_accepted(accepted)
        if not trace.is_recorded(self._settings):
            return
        agent = _agent_of(accepted)
        is_agent = agent is not None or accepted.request.tool_mode is ToolMode.KAFKA
        above = trace.answer(accepted.key) if is_agent else trace.parent
        wakes = 0 if accepted.sleeper is None else accepted.sleeper.head.wakes
        former = self._former(inflight, trace, above, wakes)
        span_id = trace.part(accepted.key, inflight.epoch, wakes)
        span = self._tracing.begin(
            f"process {REQUESTS}",
            SpanKind.CONSUMER,
            trace.trace_id,
            former if above is None else above,
            span_id,
            linked=[] if former is None else [(trace.trace_id, former)],
            start_time=accepted.record.timestamp * _MS,
            attributes=self._place(accepted.record, partition) | _asked_by(accepted.request),
        )
        self._parts[inflight] = _Part(span, trace, is_agent, agent)
        inflight.trace_headers = trace.headers(span_id)

    def _former(self, inflight: InFlight, trace: AnswerTrace, above: int | None, wakes: int) -> int | None:
        """The span of the part before this one, exported here if its worker could not."""
        accepted, former = inflight.accepted, inflight.accepted.former.answer
        if accepted.is_waking and accepted.sleeper is not None:
            return trace.part(accepted.key, accepted.sleeper.head.epoch, wakes - 1)
        if former is None or former.epoch in {-1, inflight.epoch}:
            return None
        span_id = trace.part(accepted.key, former.epoch, wakes)
        span = self._tracing.begin(
            f"process {REQUESTS}",
            SpanKind.CONSUMER,
            trace.trace_id,
            above,
            span_id,
            start_time=accepted.record.timestamp * _MS,
            attributes={"parley.taken_over": True, "parley.tokens": former.position} | _asked_by(accepted.request),
        )
        span.end(max(accepted.record.timestamp * _MS, inflight.timeline.arrived))
        return span_id

    def answered(self, partition: int, outcome: Outcome) -> None:  # noqa: ARG002
        inflight, answer, end = outcome.inflight, outcome.answer, outcome.end
        if (part := self._parts.pop(inflight, None)) is None:
            return
        now = time.time_ns()
        self._before(part, inflight)
        ended = now if answer.ended_at is None else answer.ended_at * _MS
        reason = "error" if end.finish_reason is None else end.finish_reason.value
        ended = self._round(part, inflight, end.model_version or "", answer, ended, _used(outcome, reason))
        self._tracing.child(part.span, "commit", ended, now, {})
        part.span.set_attributes(_decided(outcome))
        if answer.first_at is not None:
            part.span.add_event("first token", timestamp=answer.first_at * _MS)
        failed = None if end.error is None else Status(StatusCode.ERROR, end.error.code)
        if failed is not None:
            part.span.status = failed
        part.span.end(now)
        if part.is_agent:
            self._agent(part, inflight, failed, now)

    def _agent(self, part: _Part, inflight: InFlight, failed: Status | None, now: int) -> None:
        request, trace = inflight.accepted.request, part.trace
        attributes = _of_request(request) | {"gen_ai.operation.name": "invoke_agent"}
        if part.agent is not None:
            attributes["gen_ai.agent.name"] = part.agent
        span = self._tracing.begin(
            " ".join(filter(None, ("invoke_agent", part.agent))),
            SpanKind.INTERNAL,
            trace.trace_id,
            trace.parent,
            trace.answer(inflight.key),
            start_time=inflight.accepted.at * _MS,
            attributes=attributes | _asked_by(request),
        )
        if failed is not None:
            span.set_attributes({"error.type": failed.description or ""})
            span.status = failed
        span.end(now)

    def slept(self, partition: int, inflight: InFlight) -> None:  # noqa: ARG002
        if (part := self._parts.pop(inflight, None)) is not None:
            self._before(part, inflight)
            part.span.add_event("asleep")
            part.span.end()

    def _before(self, part: _Part, inflight: InFlight) -> None:
        """What comes before the first round of this part."""
        span, arrived, asked = part.span, inflight.timeline.arrived, inflight.accepted.record.timestamp * _MS
        self._tracing.child(span, "queue", asked, arrived, {})
        if inflight.timeline.started is not None:
            self._tracing.child(span, "wait", max(asked, arrived), inflight.timeline.started, {})
        for step in part.searches:
            attributes = _PROVIDER | {"gen_ai.operation.name": "retrieval", "gen_ai.data_source.id": step.name}
            name, details = f"retrieval {step.name}", {**step.details}
            self._tracing.child(span, name, step.began * _MS, step.ended * _MS, attributes | details)

    def _round(
        self, part: _Part, inflight: InFlight, model: str, answer: AnswerLog, ended: int, used: dict[str, Any]
    ) -> int:
        """A round of the model, if one was begun; returns its end. `ended` is the broker's time, the rest is not."""
        timeline, request = inflight.timeline, inflight.accepted.request
        if timeline.started is None:
            return ended
        began = timeline.round or max(timeline.arrived, timeline.started)
        if timeline.batched is None and timeline.admitted is None:
            self._tracing.child(part.span, "refuse" if answer.first_at is None else "copy", began, ended, {})
            return max(began, ended)
        asked = request.model or self._settings.model
        models = {"gen_ai.request.model": asked, "gen_ai.response.model": model}
        attributes = _of_request(request) | {"gen_ai.operation.name": "chat"} | models
        first = None if answer.first_at is None else answer.first_at * _MS
        if first is not None and timeline.round is not None and first < began:
            first = None  # an earlier round has written it
        if first is not None:
            attributes["gen_ai.response.time_to_first_chunk"] = max(0, first - began) / 1e9
        chat = self._tracing.begin(
            f"chat {asked}",
            SpanKind.INTERNAL,
            part.trace.trace_id,
            part.trace.answer(inflight.key) if part.is_agent else part.span.span_id,
            None,
            start_time=began,
            attributes=attributes | used,
        )
        for stage, begun, done in _stages(inflight, began, first, ended):
            self._tracing.child(chat, stage, begun, done, {})
        chat.end(done)
        return done

    def stepped(self, partition: int, step: AnswerStep) -> None:  # noqa: ARG002
        part = None if step.inflight is None else self._parts.get(step.inflight)
        if step.inflight is None:
            self._call(step)
        elif part is not None and step.kind is StepKind.RETRIEVAL:
            part.searches.append(step)
        elif part is not None and (answer := step.inflight.answer) is not None:
            used = {"gen_ai.response.finish_reasons": ["tool_calls"]}
            self._round(part, step.inflight, step.name, answer, step.ended * _MS, used)

    def _call(self, step: AnswerStep) -> None:
        trace = AnswerTrace.of(step.headers, step.key, step.at)
        if not trace.is_recorded(self._settings):
            return
        attributes: dict[str, Any] = {"gen_ai.tool.name": step.name, "gen_ai.tool.call.id": step.call_id}
        span_id, name = None, f"approval {step.name}"
        if step.kind is StepKind.TOOL:
            span_id, name = trace.call(step.call_id), f"execute_tool {step.name}"
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}
        if step.error is not None:
            attributes["error.type"] = step.error
        cause = AnswerTrace.of(step.cause, step.key, step.at)
        is_other = cause.parent is not None and cause.trace_id != trace.trace_id
        span = self._tracing.begin(
            name,
            SpanKind.INTERNAL,
            trace.trace_id,
            trace.answer(step.key),
            span_id,
            linked=[(cause.trace_id, cause.parent)] if is_other and cause.parent is not None else [],
            start_time=step.began * _MS,
            attributes=attributes | {**step.details},
        )
        if step.error is not None:
            span.status = Status(StatusCode.ERROR, step.error)
        span.end(max(step.began, step.ended) * _MS)

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
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": self._settings.topic(record.topic),
            "messaging.destination.partition.id": str(partition),
            "messaging.kafka.offset": record.offset,
            "messaging.consumer.group.name": self._settings.group,
        }


def _agent_of(accepted: Accepted) -> str | None:
    """The agent that the record names: what it brings stands in the request in its place."""
    value = accepted.record.value or b""
    if (
        value.startswith(b"{") and b"agent" not in value and b"\\u" not in value
    ):  # most name none, and need no second look
        return None
    with suppress(WireError):
        return decode(Request, value, accepted.record.headers).agent
    return None


def _of_request(request: Request) -> dict[str, Any]:
    """Parameters of the request, never its text."""
    attributes = {
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.temperature": request.temperature,
        "gen_ai.request.top_p": request.top_p,
        "gen_ai.request.top_k": request.top_k,
        "gen_ai.request.seed": request.seed,
        "gen_ai.conversation.id": request.conversation_id,
        "gen_ai.response.id": request.request_id,
    }
    return _PROVIDER | {name: value for name, value in attributes.items() if value is not None}


def _asked_by(request: Request) -> dict[str, Any]:
    attributes = {
        "user.id": request.user_id,
        "parley.request": request.request_id,
        "parley.tenant": request.tenant,
        "parley.priority": request.priority.value,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _decided(outcome: Outcome) -> dict[str, Any]:
    answer, end, plan = outcome.answer, outcome.end, outcome.answer.plan
    attributes: dict[str, Any] = {
        "parley.resumed": outcome.inflight.accepted.former.answer is not None,
        "parley.route": plan.route,
        "parley.experiment": plan.experiment,
        "parley.arm": plan.arm,
        "parley.cached": plan.cached,
        "parley.taken_over_at": plan.from_index,
        "parley.tokens": answer.index,
        "error.type": None if end.error is None else end.error.code,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _used(outcome: Outcome, reason: str) -> dict[str, Any]:
    attributes: dict[str, Any] = {"gen_ai.response.finish_reasons": [reason]}
    if (usage := outcome.end.usage) is not None:
        attributes["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.completion_tokens
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if outcome.end.error is not None:
        attributes["error.type"] = outcome.end.error.code
    return attributes


def _stages(inflight: InFlight, began: int, first: int | None, ended: int) -> Iterator[tuple[str, int, int]]:
    """(name, began, ended) in Unix nanoseconds; each begins where its predecessor ended."""
    timeline = inflight.timeline
    # The first token of a resumed answer was written by a former owner.
    is_resumed = inflight.accepted.former.answer is not None
    for name, done in (
        ("batch", timeline.batched),
        ("schedule", timeline.admitted),
        ("prefill", None if is_resumed else first),
        ("decode", ended),
    ):
        if done is not None:
            yield name, began, max(began, done)
            began = max(began, done)
