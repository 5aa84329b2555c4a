"""What others learn of answers that wait: records of `waits`, in the transaction that changes the rows."""

from __future__ import annotations

from app.delivery.accepted import RequestKey
from app.delivery.record import Outgoing
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.waits import Wait, WaitRecord
from tables.asleep import Head
from tables.records import encode
from tables.records import key as key_of
from tables.tool_calls import NO_ROUNDS, ToolRounds

ENDED = "ended"


def waits_of(rounds: ToolRounds) -> tuple[Wait, ...]:
    """The calls of the last round that have no result yet."""
    until = rounds.rounds[-1].expires_at if rounds.rounds else None
    return tuple(Wait(call.id, "tool", call.name, call.arguments, until) for call in rounds.missing)


def told(settings: Settings, key: RequestKey, head: Head, rounds: ToolRounds = NO_ROUNDS, state: str = "") -> Outgoing:
    """The record of an answer in this state, by default that of its head."""
    user_id, request_id = key
    record = WaitRecord(
        request_id=request_id,
        user_id=user_id,
        conversation_id=head.conversation_id,
        tenant=head.tenant,
        state=state or head.state.value,
        since=head.since,
        until=head.until,
        tokens_offset=head.tokens_offset,
        waits=waits_of(rounds),
    )
    return Outgoing(settings.topic(TopicName.WAITS), key_of(*key), encode(record))


def untold(settings: Settings, key: RequestKey) -> Outgoing:
    """Nothing is known of the answer any more."""
    return Outgoing(settings.topic(TopicName.WAITS), key_of(*key), None)
