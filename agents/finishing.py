"""What a request leaves behind: table rows, output records and its offset. Pure functions without I/O."""

from __future__ import annotations

from dataclasses import dataclass

from app.delivery.answer_log import AnswerLog
from app.delivery.claim import Claim
from app.delivery.finish import Finish
from app.delivery.record import Outgoing, Record
from app.settings import Settings
from app.wire.codec import encode
from app.wire.codes import ErrorCode
from app.wire.dead_letters import MAX_DEAD_LETTER_BYTES, cause_of, dead_letter
from app.wire.error import WireError
from app.wire.event import ErrorInfo, EventType, TokenEvent
from app.wire.limits import MAX_USER_LENGTH
from app.wire.turn import Timing, Turn
from models.generation import FinishReason, Usage
from tables import records
from tables.conversations import MemoryRules
from tables.records import Change, Conversation, Ended, Table


@dataclass(frozen=True, slots=True)
class Refusal:
    """The commit of a record that violates the contract. Includes an error `event` if its sender can be identified."""

    finish: Finish
    event: TokenEvent | None = None


def finish_of(
    claim: Claim,
    answer: AnswerLog,
    end: TokenEvent,
    conversation: Conversation | None,
    rules: MemoryRules,
    settings: Settings,
    now: int,
) -> Finish:
    """The commit of a request whose answer has its `end`.

    `conversation` is the history that the request saw; `now` is the broker's clock in Unix milliseconds.
    """
    ended = Change(Table.ENDED, records.key(*claim.key), records.encode(Ended(now)))
    if end.type is not EventType.DONE:
        return Finish(claim.record, (ended,))
    value, headers = encode(_turn(claim, answer, end, now), settings.wire_format)
    output = Outgoing(settings.topic("turns"), claim.record.key, value, [*headers, *claim.carried])
    if claim.forget or not answer.text:
        return Finish(claim.record, (ended,), (output,))
    request = claim.request
    turn = records.Turn(request.request_id, request.question, answer.text, now)
    remembered = rules.remember(conversation, turn, claim.at)
    row = Change(Table.CONVERSATIONS, records.key(*claim.conversation), records.encode(remembered))
    return Finish(claim.record, (row, ended), (output,))


def quarantine_of(claim: Claim, reason: str, settings: Settings, now: int) -> Finish:
    """The commit of a quarantined request: its id is marked as ended, and its record becomes a dead letter."""
    ended = Change(Table.ENDED, records.key(*claim.key), records.encode(Ended(now)))
    error = WireError(ErrorCode.ENGINE_ERROR, reason, request_id=claim.request.request_id)
    return Finish(claim.record, (ended,), (dead_letter_of(claim.record, error, settings),))


def refusal_of(record: Record, error: WireError, *, known: bool, settings: Settings, now: int) -> Refusal:
    """A dead letter if the record is invalid, and an error event if it has a request id that is not `known`.

    A key that is too long to be a user id gets no event.
    """
    outputs = (dead_letter_of(record, error, settings),) if error.dead_letter else ()
    user_id = refused_user(record, error)
    if error.request_id is None or known or len(user_id) > MAX_USER_LENGTH:
        return Refusal(Finish(record, (), outputs))
    ended = Change(Table.ENDED, records.key(user_id, error.request_id), records.encode(Ended(now)))
    event = TokenEvent(
        type=EventType.ERROR,
        request_id=error.request_id,
        user_id=user_id,
        conversation_id=error.conversation_id,
        index=0,
        error=ErrorInfo(error.code, error.message),
    )
    return Refusal(Finish(record, (ended,), outputs), event)


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


def reduced(finish: Finish, reason: str, settings: Settings) -> Finish:
    """The commit without the output that the broker refused: the record becomes a dead letter without its value."""
    if finish.record is None:
        return Finish(None)
    error = WireError(ErrorCode.INVALID_REQUEST, f"Kafka rejects a record that this one leads to: {reason}")
    ended = tuple(change for change in finish.changes if change.table is Table.ENDED)
    return Finish(finish.record, ended, (dead_letter_of(finish.record, error, settings, most_bytes=0),))


def _turn(claim: Claim, answer: AnswerLog, end: TokenEvent, now: int) -> Turn:
    request = claim.request
    return Turn(
        request_id=request.request_id,
        user_id=request.user_id,
        conversation_id=request.conversation_id,
        prompt="" if claim.forget else request.question,
        answer="" if claim.forget else answer.text,
        finish_reason=end.finish_reason or FinishReason.STOP,
        usage=end.usage or Usage(0, answer.index),
        model_version=end.model_version or "",
        tenant=request.tenant,
        created_at=now,
        timing=Timing(
            requested_at=claim.at,
            started_at=claim.started_at,
            first_token_at=answer.first_at,
            finished_at=now,
        ),
    )
