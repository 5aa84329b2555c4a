"""What others learn of answers that wait: records of `waits`, in the transaction that changes the rows."""

from __future__ import annotations

from app.delivery.accepted import RequestKey
from app.delivery.record import Outgoing
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.waits import DecidedWait, Wait, WaitRecord
from models.interface.chat import ModelCall
from tables.asleep import Head, Sleep, WaitKind
from tables.records import encode
from tables.records import key as key_of
from tables.tool_calls import NO_ROUNDS, ApprovalState, ToolRound, ToolRounds

ENDED = "ended"
TIMER = WaitKind.TIMER.value


def waits_of(rounds: ToolRounds) -> tuple[Wait, ...]:
    """The calls of the last round that have no result yet."""
    return tuple(_wait(rounds.rounds[-1], call) for call in rounds.missing)


def _wait(one: ToolRound, call: ModelCall) -> Wait:
    approval = one.approval(call.id)
    agent = next((agent.agent for agent in one.agents if agent.call_id == call.id), None)
    if agent == "":
        return Wait(call.id, TIMER, "", until=one.until(call.id))
    if agent is not None:
        return Wait(call.id, "answer", call.name, call.arguments, one.until(call.id), agent)
    if approval is None or not approval.is_asked:
        return Wait(call.id, "tool", call.name, call.arguments, one.until(call.id))
    schema = None if approval.parameters is None else encode(approval.parameters).decode()
    of_call = (call.id, "approval", call.name, call.arguments, approval.until, approval.by, schema)
    return Wait(*of_call, description=approval.description, question=approval.question)


def waited_for(rounds: ToolRounds) -> str:
    """The kind of what the last round has waited for."""
    if rounds.is_rejected:
        return "approval"
    agents = rounds.rounds[-1].agents if rounds.rounds else ()
    return "tool" if not agents else "answer" if any(one.agent for one in agents) else TIMER


def decisions_of(rounds: ToolRounds, *, has_ended: bool) -> tuple[DecidedWait, ...]:
    """The approvals that are over, and how."""
    edited = {} if has_ended else {call.id: call.arguments for call in rounds.calls}
    return tuple(
        DecidedWait(
            one.call_id,
            one.state.value,
            one.decided_by or None,
            edited.get(one.call_id) if one.state is ApprovalState.EDITED else None,
        )
        for one in rounds.approvals
        if not one.is_asked
    )


def wait_of(key: RequestKey, head: Head) -> Wait:
    """What a request waits for whose time is to come."""
    return Wait(key[1], TIMER, "", until=head.until)


def state_record(
    settings: Settings, key: RequestKey, head: Head, rounds: ToolRounds = NO_ROUNDS, state: str = ""
) -> Outgoing:
    """The record of an answer in this state, by default that of its head."""
    user_id, request_id = key
    is_timer = head.kind is WaitKind.TIMER and head.state is Sleep.ASLEEP and not state
    record = WaitRecord(
        request_id=request_id,
        user_id=user_id,
        conversation_id=head.conversation_id,
        tenant=head.tenant,
        state=state or head.state.value,
        since=head.since,
        until=head.until,
        tokens_offset=head.tokens_offset,
        waits=() if state == ENDED else (wait_of(key, head),) if is_timer else waits_of(rounds),
        decided=decisions_of(rounds, has_ended=state == ENDED),
    )
    return Outgoing(settings.topic(TopicName.WAITS), key_of(*key), encode(record))


def erased_record(settings: Settings, key: RequestKey) -> Outgoing:
    """Nothing is known of the answer any more."""
    return Outgoing(settings.topic(TopicName.WAITS), key_of(*key), None)
