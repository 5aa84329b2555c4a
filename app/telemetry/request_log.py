"""One log line per ended request: who, where, how, and the time of each stage; a warning for one without an answer.

It never contains the prompt or the answer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from app.delivery.dead_letters import report_refusal
from app.delivery.inflight import Outcome
from app.delivery.observer import Observer
from app.delivery.record import Record
from app.wire.event import TokenEvent

log = logging.getLogger("parley.requests")

_TRACE_ID = re.compile(rb"[0-9a-f]{32}")

_QUOTED = ("response_format", "tools")
"""Fields whose errors quote what is in them."""


class RequestLog(Observer):
    """With `as_fields` the values are fields beside the message, for a formatter that knows `fields`
    (log_format.py).
    """

    def __init__(self, *, as_fields: bool) -> None:
        self._as_fields = as_fields

    def answered(self, partition: int, outcome: Outcome) -> None:
        if (error := outcome.end.error) is not None:
            report_refusal(outcome.inflight.accepted.record, error.code, _unquoted(error.message))
        if not log.isEnabledFor(logging.INFO):
            return
        inflight, answer, end, plan = outcome.inflight, outcome.answer, outcome.end, outcome.answer.plan
        record, request, timeline = inflight.accepted.record, inflight.accepted.request, inflight.timeline

        def since(at_ms: int | None) -> int | None:
            return None if at_ms is None else at_ms - record.timestamp

        values = {
            "request_id": request.request_id,
            "user_id": request.user_id,
            "conversation_id": request.conversation_id,
            "tenant": request.tenant,
            "partition": partition,
            "offset": record.offset,
            "model": end.model_version,
            "route": plan.route,
            "arm": plan.arm,
            "cached": plan.cached,
            "end": end.finish_reason.value if end.finish_reason is not None else None,
            "error": end.error.code if end.error is not None else None,
            "prompt_tokens": end.usage.prompt_tokens if end.usage is not None else None,
            "cached_tokens": end.usage.cached_tokens if end.usage is not None else None,
            "completion_tokens": answer.index,
            "resumed": inflight.accepted.former.answer is not None or None,
            "taken_ms": since(milliseconds(timeline.arrived)),
            "batched_ms": since(milliseconds(timeline.batched)),
            "engine_ms": since(milliseconds(timeline.admitted)),
            "first_token_ms": since(answer.first_at),
            "end_ms": since(answer.ended_at),
            "ignored": ",".join(inflight.accepted.ignored) or None,
            "trace": _trace_of(inflight.trace_headers),
        }
        self._log("request ended", values)

    def refused(self, record: Record, event: TokenEvent) -> None:
        values = {
            "request_id": event.request_id,
            "user_id": event.user_id,
            "partition": record.partition,
            "offset": record.offset,
            "error": event.error.code if event.error is not None else None,
        }
        self._log("request refused", values)

    def _log(self, message: str, values: Mapping[str, object]) -> None:
        fields = {name: value for name, value in values.items() if value is not None}
        if self._as_fields:
            log.info(message, extra={"fields": fields})
        else:
            # In one string: Faust's formatter spends more on arguments than the rest of the line costs.
            line = " ".join(f"{name}={_plain(value)}" for name, value in fields.items())
            log.info(f"{message}: {line}")  # noqa: G004


def _unquoted(message: str) -> str:
    """Without the reason, if it quotes a schema, a grammar or a tool: those are a user's words."""
    field, _, _ = message.partition(":")
    return f"{field}: it cannot be followed; its sender has the reason" if field in _QUOTED else message


def _plain(value: object) -> object:
    """A value as it is in a line: a name chosen by a user must not read like another field or line."""
    if not isinstance(value, str) or (value.isprintable() and not {" ", "=", '"', "'"} & set(value)):
        return value
    return ascii(value)


def _trace_of(trace_headers: tuple[tuple[str, bytes], ...]) -> str | None:
    """The trace id in a W3C traceparent: version-trace-span-flags."""
    for name, value in trace_headers:
        parts = value.split(b"-")
        if name == "traceparent" and len(parts) >= 4 and _TRACE_ID.fullmatch(parts[1]):
            return parts[1].decode()
    return None


def milliseconds(at: int | None) -> int | None:
    """A point of the timeline in the unit of records."""
    return None if at is None else at // 1_000_000
