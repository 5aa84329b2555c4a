"""What a request leaves behind: table rows, output records and its offset."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from app.answering.dialogue import before_of, beginning_of, ended_in, question_of, steps_of
from app.answering.run import Run
from app.audit.records import audit_of_refusal, audit_of_request
from app.delivery.accepted import Accepted
from app.delivery.commits.commit import Commit
from app.delivery.dead_letters import letter_of, report_refusal
from app.delivery.record import Outgoing, Record, outgoing
from app.settings import Settings
from app.wire.audit import AuditRecord
from app.wire.error import WireError
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.ids import MAX_USER_LENGTH
from app.wire.record_size import MAX_RECORD_BYTES
from app.wire.tools import ToolCall
from app.wire.turn import Timing, Turn
from models.interface.chat import ModelCall
from models.interface.generation import FinishReason, Usage
from tables import records
from tables.records import Ended, RowChange, Table

log = logging.getLogger(__name__)

_MAX_ROW_BYTES = MAX_RECORD_BYTES - (4 << 10)
"""Of key and value; the rest is for Kafka's framing."""
_BEFORE_ITS_BEGINNING = {FinishReason.CANCELLED, FinishReason.DEADLINE, FinishReason.FILTERED, FinishReason.PARTIAL}
"""How an answer without a token ends that was not the model's own."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of an answer that has ended; each stage may change it.

    turn: Its record on `turns`; None for an error.
    row: Its turn in the conversation; None if none is remembered.
    is_empty: The answer ended before its first token, so the conversation does not remember it.
    changes, outputs: Other rows, and other records.
    instead: Records in place of all of them if Kafka rejects one.
    audit: Records of `audit` beside that of the request.
    """

    turn: Turn | None = None
    row: records.KeptTurn | None = None
    is_empty: bool = False
    changes: tuple[RowChange, ...] = ()
    outputs: tuple[Outgoing, ...] = ()
    instead: tuple[Outgoing, ...] = ()
    audit: tuple[AuditRecord, ...] = ()

    def with_output(self, output: Outgoing) -> Kept:
        return self.with_outputs([output])

    def with_outputs(self, outputs: Sequence[Outgoing], instead: Sequence[Outgoing] = ()) -> Kept:
        return dataclasses.replace(self, outputs=(*self.outputs, *outputs), instead=(*self.instead, *instead))

    def with_change(self, change: RowChange) -> Kept:
        return dataclasses.replace(self, changes=(*self.changes, change))

    def without_texts(self) -> Kept:
        """The turn's record says that it was, not what."""
        if self.turn is None:
            return self
        private = None if self.turn.private is None else ()
        turn = msgspec.structs.replace(
            self.turn, prompt="", answer="", tool_calls=None, private=private, reasoning=None
        )
        return dataclasses.replace(self, turn=turn)


Leave = Callable[[Kept], Kept]
"""What a stage does to what is kept."""


def commit_of(run: Run, leaves: Sequence[Leave], end: TokenEvent, now: int) -> Commit:
    """The commit of a request whose answer has its `end`; `now` is the broker's clock in Unix milliseconds."""
    accepted = run.accepted
    run.drop_erased()
    kept = _kept(run, end, now) if end.type is EventType.DONE else Kept()
    for leave in leaves:
        kept = leave(kept)
    changes, outputs = [*kept.changes, ended_row(accepted, now)], [*kept.outputs]
    if kept.turn is not None:
        turn = outgoing(run.settings, "turns", accepted.record.key, kept.turn, run.inflight.trace_headers)
        outputs.insert(0, turn)
    if kept.row is not None and not kept.is_empty:
        remembered = run.rules.remember(run.conversation, kept.row, accepted.at)
        remembered = msgspec.structs.replace(remembered, erased_at=run.marks.at)
        key = records.key(*accepted.conversation)
        changes.insert(0, RowChange(Table.CONVERSATIONS, key, records.encode(remembered)))
    audit = (*kept.audit, *audit_of_request(accepted, run.answer, end, now))
    return _within_records(Commit(accepted.record, tuple(changes), tuple(outputs), audit, instead=kept.instead))


def ended_row(accepted: Accepted, now: int) -> RowChange:
    """The row that says that the request has ended."""
    return RowChange(Table.ENDED, records.key(*accepted.key), records.encode(Ended(now)))


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


def _kept(run: Run, end: TokenEvent, now: int) -> Kept:
    request, answer, memory = run.accepted.request, run.answer, run.memory
    calls = tuple(ModelCall(call.name, call.arguments, call.id) for call in end.tool_calls or ())
    text = beginning_of(request) + answer.text_of_round
    row = records.KeptTurn(
        request_id=request.request_id,
        prompt=question_of(request, memory),
        answer="" if calls else text,
        at=now,
        steps=ended_in(steps_of(request, memory), text, calls),
        before=before_of(request, memory),
        after=request.previous_request_id or "",
    )
    is_remembered = not run.forgets and run.stores and not request.is_raw
    is_empty = not (answer.index or answer.text or calls) and end.finish_reason in _BEFORE_ITS_BEGINNING
    kept = Kept(_turn(run, end, now), row if is_remembered else None, is_empty=is_empty)
    return kept.without_texts() if run.hides_turn else kept


def _turn(run: Run, end: TokenEvent, now: int) -> Turn:
    accepted, answer, plan = run.accepted, run.answer, run.answer.plan
    request, started = accepted.request, run.inflight.timeline.started
    calls = tuple(ToolCall(one.id, one.name, one.arguments) for one in end.tool_calls or ())
    return Turn(
        request_id=request.request_id,
        user_id=request.user_id,
        conversation_id=request.conversation_id,
        prompt=question_of(request, run.memory),
        answer=answer.text,
        finish_reason=end.finish_reason or FinishReason.STOP,
        usage=end.usage or Usage(0, answer.index),
        model_version=end.model_version or "",
        tenant=request.tenant,
        created_at=now,
        timing=Timing(
            requested_at=accepted.at,
            started_at=None if started is None else started // 1_000_000,
            first_token_at=answer.first_at,
            finished_at=now,
        ),
        tool_calls=calls or None,
        route=plan.route,
        experiment=plan.experiment,
        arm=plan.arm,
        cached=plan.cached,
        guard=plan.categories or None,
        reasoning=answer.reasoning or None,
        replaces=request.replaces or None,
    )


def refusal_of(
    record: Record, error: WireError, *, known: bool, settings: Settings, now: int
) -> tuple[Commit, TokenEvent | None]:
    """What is committed of a record that violates the contract, with a dead letter if it is invalid. The error event
    beside it is None without a request id, for one that is `known`, and for a key that is too long to be a user id.
    """
    outputs: tuple[Outgoing, ...] = ()
    if error.dead_letter:
        outputs = (letter_of(record, error, settings),)
    else:
        report_refusal(record, error.code, error.message)
    user_id = refused_user(record, error)
    audit = () if known and not outputs else audit_of_refusal(user_id, error, now)
    if error.request_id is None or known or len(user_id) > MAX_USER_LENGTH:
        return Commit(record, (), outputs, audit), None
    ended = RowChange(Table.ENDED, records.key(user_id, error.request_id), records.encode(Ended(now)))
    event = TokenEvent(
        type=EventType.ERROR,
        request_id=error.request_id,
        user_id=user_id,
        conversation_id=error.conversation_id,
        index=0,
        error=ErrorInfo(error.code, error.message),
    )
    return Commit(record, (ended,), outputs, audit), event


def refused_user(record: Record, error: WireError) -> str:
    """The user to report the error to: the user in the record's key, which determines the partition."""
    return (error.user_id or "") if record.key is None else record.key.decode("utf-8", errors="replace")
