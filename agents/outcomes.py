"""What a request leaves behind: table rows, output records and its offset. Pure functions without I/O."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass

import msgspec

from agents.auditing import audit_of_refusal, audit_of_request
from agents.dialogue import before_of, beginning_of, ended_in, question_of, steps_of
from agents.masking import kept_turn, private_in
from agents.tool_rounds import stopped
from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlightRequest
from app.delivery.record import Outgoing, Record
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.timeline import milliseconds
from app.policy.guard_rules import TOO_MANY, UNJUDGED
from app.settings import Settings
from app.wire.codec import encode
from app.wire.dead_letters import MAX_DEAD_LETTER_BYTES, cause_of, dead_letter
from app.wire.error import ErrorCode, WireError
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.limits import MAX_RECORD_BYTES, MAX_USER_LENGTH, json_bytes
from app.wire.tools import ToolCall as ToolCallOnWire
from app.wire.turn import Timing, Turn
from models.chat import ToolCall
from models.generation import FinishReason, Usage
from tables import records
from tables.conversations import MemoryRules
from tables.records import Change, Conversation, Ended, Table
from tables.tool_calls import row

log = logging.getLogger(__name__)

_MAX_ROW_BYTES = MAX_RECORD_BYTES - (4 << 10)
"""Of key and value; the rest is for Kafka's framing."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The commit of a record that violates the contract. Includes an error `event` if its sender can be identified."""

    commit: Commit
    event: TokenEvent | None = None


def commit_of(
    inflight: InFlightRequest,
    answer: AnswerLog,
    end: TokenEvent,
    conversation: Conversation | None,
    rules: MemoryRules,
    settings: Settings,
    now: int,
    erased_at: int = 0,
) -> Commit:
    """The commit of a request whose answer has its `end`.

    `conversation` is the history that the request saw; `now` is the broker's clock in Unix milliseconds; `erased_at` is
    the time of the user's last erasure.
    """
    ended = ended_rows(inflight, now)
    audit = audit_of_request(inflight, answer, end, now)
    if end.type is not EventType.DONE:
        return Commit(inflight.record, ended, audit=audit)
    memory = memory_of(inflight, conversation, rules)
    value, headers = encode(_turn(inflight, memory, answer, end, now), settings.wire_format)
    output = Outgoing(settings.topic("turns"), inflight.record.key, value, [*headers, *inflight.trace_headers])
    request = inflight.request
    calls = tuple(ToolCall(call.name, call.arguments, call.id) for call in end.tool_calls or ())
    rounds = stopped(inflight.rounds)
    if inflight.forget or not request.store or request.is_raw or not (answer.text or calls or rounds.rounds):
        return Commit(inflight.record, ended, (output,), audit)
    text = beginning_of(request) + answer.text_of_round
    turn = records.Turn(
        request_id=request.request_id,
        prompt=question_of(request, memory),
        answer="" if calls else text,
        at=now,
        steps=ended_in((*steps_of(request, memory), *rounds.steps), text, calls),
        before=before_of(request),
        after=request.previous_request_id or "",
    )
    remembered = rules.remember(conversation, kept_turn(turn, inflight), inflight.at)
    remembered = msgspec.structs.replace(remembered, erased_at=erased_at)
    memory_row = Change(Table.CONVERSATIONS, records.key(*inflight.conversation), records.encode(remembered))
    return _within_records(Commit(inflight.record, (memory_row, *ended), (output,), audit))


def _within_records(commit: Commit) -> Commit:
    """The commit without a conversation that no record can hold: the turn is kept, and not remembered."""
    rows = tuple(row for row in commit.changes if len(row.key) + len(row.value or b"") <= _MAX_ROW_BYTES)
    if len(rows) < len(commit.changes) and commit.record is not None:
        record = commit.record
        log.warning(
            "%s[%s]@%s: its turn is not remembered: the conversation would have more than %s bytes",
            record.topic,
            record.partition,
            record.offset,
            _MAX_ROW_BYTES,
        )
    return commit if len(rows) == len(commit.changes) else dataclasses.replace(commit, changes=rows)


def kept_bytes(inflight: InFlightRequest) -> int:
    """Bytes, as JSON, of what its turn will keep beside the answer: on `turns`, or in its conversation."""
    request, memory = inflight.request, inflight.memory
    size = json_bytes(question_of(request, memory)) + len(records.encode(inflight.plan.private or ()))
    if request.store and not request.is_raw:
        size += len(records.encode((steps_of(request, memory), before_of(request))))
    return size


def memory_of(
    inflight: InFlightRequest, conversation: Conversation | None, rules: MemoryRules
) -> tuple[records.Turn, ...]:
    """The turns that the request sees; one that brings its whole context sees none."""
    request = inflight.request
    if request.is_raw or (request.messages is not None and request.previous_request_id is None):
        return ()
    return rules.recall(conversation, inflight.at, request.previous_request_id)


def quarantine_of(
    inflight: InFlightRequest, answer: AnswerLog, end: TokenEvent, reason: str, settings: Settings, now: int
) -> Commit:
    """The commit of a quarantined request: its id is marked as ended, and its record becomes a dead letter."""
    error = WireError(ErrorCode.ENGINE_ERROR, reason, request_id=inflight.request.request_id)
    letter = dead_letter_of(inflight.record, error, settings)
    audit = audit_of_request(inflight, answer, end, now)
    return Commit(inflight.record, ended_rows(inflight, now), (letter,), audit)


def ended_rows(inflight: InFlightRequest, now: int) -> tuple[Change, ...]:
    """The rows that say that the request has ended."""
    ended = Change(Table.ENDED, records.key(*inflight.key), records.encode(Ended(now)))
    return (ended, row(*inflight.key, None)) if inflight.made.rounds else (ended,)


def refusal_of(record: Record, error: WireError, *, known: bool, settings: Settings, now: int) -> Refusal:
    """A dead letter if the record is invalid, and an error event if it has a request id that is not `known`.

    A key that is too long to be a user id gets no event.
    """
    outputs = (dead_letter_of(record, error, settings),) if error.dead_letter else ()
    user_id = refused_user(record, error)
    audit = () if known and not outputs else audit_of_refusal(user_id, error, now)
    if error.request_id is None or known or len(user_id) > MAX_USER_LENGTH:
        return Refusal(Commit(record, (), outputs, audit))
    ended = Change(Table.ENDED, records.key(user_id, error.request_id), records.encode(Ended(now)))
    event = TokenEvent(
        type=EventType.ERROR,
        request_id=error.request_id,
        user_id=user_id,
        conversation_id=error.conversation_id,
        index=0,
        error=ErrorInfo(error.code, error.message),
    )
    return Refusal(Commit(record, (ended,), outputs, audit), event)


def refused_user(record: Record, error: WireError) -> str:
    """The user to report the error to: the user in the record's key, which determines the partition."""
    if record.key is not None:
        return record.key.decode("utf-8", errors="replace")
    return error.user_id or ""


def dead_letter_of(
    record: Record, error: WireError, settings: Settings, *, most_bytes: int = MAX_DEAD_LETTER_BYTES
) -> Outgoing:
    """The record as received with the cause of its rejection, cut to `most_bytes`."""
    cause = cause_of(error, settings.topic(record.topic), record.partition, record.offset)
    letter = dead_letter(cause, record.key, record.value, record.headers, most_bytes=most_bytes)
    return Outgoing(settings.topic("dead-letters"), letter.key, letter.value, tuple(letter.headers))


def reduced(commit: Commit, reason: str, settings: Settings) -> Commit:
    """The commit without the output that the broker refused: the record becomes a dead letter without its value."""
    if commit.record is None:
        return Commit(None)
    error = WireError(ErrorCode.INVALID_REQUEST, f"Kafka rejects a record that this one leads to: {reason}")
    ended = tuple(change for change in commit.changes if change.table is Table.ENDED)
    letter = dead_letter_of(commit.record, error, settings, most_bytes=0)
    return Commit(commit.record, ended, (letter,), commit.audit)


def _turn(
    inflight: InFlightRequest, memory: tuple[records.Turn, ...], answer: AnswerLog, end: TokenEvent, now: int
) -> Turn:
    request = inflight.request
    # A prompt without a verdict is not kept; an answer that ended for want of one later had a prompt with a verdict.
    is_unjudged = inflight.plan.filtered in {UNJUDGED, TOO_MANY} and not answer.index
    hidden = inflight.forget or not request.store or is_unjudged
    prompt = "" if hidden else inflight.kept.hide(question_of(request, memory))
    text = "" if hidden else inflight.kept.hide(answer.text)
    return Turn(
        request_id=request.request_id,
        user_id=request.user_id,
        conversation_id=request.conversation_id,
        prompt=prompt,
        answer=text,
        finish_reason=end.finish_reason or FinishReason.STOP,
        usage=end.usage or Usage(0, answer.index),
        model_version=end.model_version or "",
        tenant=request.tenant,
        created_at=now,
        timing=Timing(
            requested_at=inflight.at,
            started_at=milliseconds(inflight.timeline.started),
            first_token_at=answer.first_at,
            finished_at=now,
        ),
        tool_calls=None if hidden else _calls(inflight, end) or None,
        route=inflight.plan.route,
        experiment=inflight.plan.experiment,
        arm=inflight.plan.arm,
        cached=inflight.plan.cached,
        guard=inflight.plan.categories or None,
        private=private_in(inflight, (prompt, text)),
    )


def _calls(inflight: InFlightRequest, end: TokenEvent) -> tuple[ToolCallOnWire, ...]:
    """The calls of the answer: those that were made over Kafka, and those in which it ends."""
    made = (ToolCallOnWire(call.id, call.name, call.arguments) for call in inflight.rounds.calls)
    hide = inflight.kept.hide_json
    return tuple(ToolCallOnWire(one.id, one.name, hide(one.arguments)) for one in (*made, *(end.tool_calls or ())))
