"""Calls that need an approval before they are made.

A round that ends in such a call is committed like any other, but for the call: it is `asked`, and no record of it is on
`tool-calls`. The answer sleeps at once. Then one of these comes first, and each is one transaction with what it causes:

    approved, edited   the call is made, with the arguments that count. Nothing wakes.
    rejected           is the call's result. With the last result the answer wakes.
    the time is over   as the policy says, either of the two.

A decision counts if it was written in time by the broker's clock, whenever it is read. So the clock does not decide: it
puts an `Expire` on `controls`, and the wait is over when the owner reads that, behind all decisions that came in time.

All that a decision needs is in the rounds, so it does not matter whether the answer is open, asleep or on its way. What
ends an answer (a cancel, an erasure, its deadline) ends its approvals: a decision that comes later changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from app.audit.records import audit_of_approval
from app.delivery.accepted import RequestKey
from app.delivery.commits.commit import Commit
from app.delivery.partition import Partition
from app.delivery.record import CONTROLS, Outgoing, Record, outgoing
from app.features.answer_steps import tell_calls, trace_of
from app.features.open_calls import OpenCalls
from app.features.waits.wake import Woken, beside_of, commit, wake_with
from app.policy.tools import BY_USER
from app.settings import Settings
from app.wire.arguments import arguments_mistake
from app.wire.audit import AuditRecord
from app.wire.control import Decide, Expire
from app.wire.error import ErrorCode, WireError
from app.wire.tool_records import ToolCallRecord
from models.interface.chat import ModelCall
from tables import records
from tables.asleep import Sleep
from tables.records import Table
from tables.tool_calls import Approval, ApprovalState, ToolOutcome, ToolRounds, fits

TIMED_OUT = "error: the tool did not answer in time"
LATE = "error: the agent did not answer in time"
SLEPT = "the time has come"
NOT_SLEPT = "error: too many answers wait, so the time is cut short"
NOT_APPROVED = "error: nobody has approved this in time"
NOT_ASKED = "error: nobody was asked to approve this, because too many answers wait"
Headers = tuple[tuple[str, bytes | None], ...]


class Decided(NamedTuple):
    """What is decided about calls of an answer, and the records that go with it."""

    rounds: ToolRounds
    outputs: tuple[Outgoing, ...] = ()
    audit: tuple[AuditRecord, ...] = ()


def call_record(
    settings: Settings, key: RequestKey, rounds: ToolRounds, call: ModelCall, now: int, headers: Headers = ()
) -> Outgoing:
    """The record by which a call of the last round is made."""
    user_id, request_id = key
    record = ToolCallRecord(
        tool_call_id=call.id,
        name=call.name,
        arguments=call.arguments,
        request_id=request_id,
        user_id=user_id,
        conversation_id=rounds.conversation_id,
        created_at=now,
        expires_at=rounds.rounds[-1].until(call.id),
        tenant=rounds.tenant,
    )
    return outgoing(settings, "tool-calls", user_id.encode(), record, headers)


def asked(key: RequestKey, rounds: ToolRounds, now: int) -> tuple[AuditRecord, ...]:
    """What the audit has of the approvals for which the last round asks."""
    last = rounds.rounds[-1]
    by = {one.call_id: one.by for one in last.approvals}
    return tuple(audit_of_approval(key, rounds, "asked", by[call.id], call, now) for call in last.asked)


def over(key: RequestKey, rounds: ToolRounds, now: int) -> tuple[AuditRecord, ...]:
    """What the audit has of an answer that ends while it waits for approvals."""
    return tuple(
        audit_of_approval(key, rounds, "cancelled", approval.by, call, now)
        for call in rounds.asked_calls
        if (approval := rounds.rounds[-1].approval(call.id)) is not None
    )


def not_asked(key: RequestKey, rounds: ToolRounds, now: int) -> Decided:
    """The answer cannot sleep, so nobody can be asked."""
    audit = over(key, rounds, now)
    for call in rounds.asked_calls:
        approval = rounds.rounds[-1].approval(call.id)
        assert approval is not None
        rounds = rounds.with_approval(msgspec.structs.replace(approval, state=ApprovalState.EXPIRED))
        rounds = rounds.answered(ToolOutcome(call.id, NOT_ASKED))
    return Decided(rounds, (), audit)


def timed_out(rounds: ToolRounds, now: int, latest: int | None = None) -> ToolRounds:
    """What the clock decides about calls that are made. `latest`: when they are over in any case."""
    asked = rounds.asked_calls
    for call in rounds.missing:
        until = rounds.rounds[-1].until(call.id)
        if call not in asked and (until if latest is None else min(until, latest)) <= now:
            rounds = rounds.answered(ToolOutcome(call.id, _late(rounds, call, until, now)))
    return rounds


def _late(rounds: ToolRounds, call: ModelCall, until: int, now: int) -> str:
    agent = next((one.agent for one in rounds.agents if one.call_id == call.id), None)
    if agent == "":  # it waits for its time alone
        return SLEPT if until <= now else NOT_SLEPT
    return TIMED_OUT if agent is None else LATE


def expiries(settings: Settings, key: RequestKey, rounds: ToolRounds, now: int) -> tuple[Outgoing, ...]:
    """The records by which the time of approvals is over."""
    user_id, request_id = key
    over = [call.id for call in rounds.asked_calls if rounds.rounds[-1].until(call.id) <= now]
    records = (Expire(request_id=request_id, user_id=user_id, wait_id=wait_id) for wait_id in over)
    return tuple(outgoing(settings, CONTROLS, user_id.encode(), record) for record in records)


async def decide(partition: Partition, calls: OpenCalls, record: Record, decision: Decide | Expire) -> None:
    """Commit what the decision causes, or nothing if it comes too late. Raises `WireError` for one about no wait.

    An erasure of the user that stands before it in the log is decided before it.
    """
    key = (decision.user_id, decision.request_id)
    ownership = partition.ownership
    async with ownership.marks.locks.of(decision.user_id):
        decided = _decided(partition, calls, decision, ownership.clock.time_of(record.timestamp))
        if decided is None:
            await partition.commit(Commit(record))
            return
        before = calls.decided(key)
        change, woken = calls.decide(key, decided.rounds), wake_with(partition, key, decided.rounds)
        if (head := ownership.sleepers.head(key)) is not None:
            calls.schedule.watch(key, head, ownership.clock.now())
        await commit(partition, [key], [Woken((change,), decided.outputs, decided.audit), woken], record)
        if before is not None:
            tell_calls(partition, key, before, decided.rounds, ownership.clock.now(), record.headers)
        calls.settle({key: decided.rounds})
        calls.wake([key])


def _decided(partition: Partition, calls: OpenCalls, decision: Decide | Expire, at: int) -> Decided | None:
    """What a record of the time `at` decides; None if the wait is over, or goes on."""
    key, settings = (decision.user_id, decision.request_id), partition.context.settings
    rounds, now = calls.decided(key), partition.ownership.clock.now()
    approval = None if rounds is None else _approval(rounds, decision.wait_id)
    if isinstance(decision, Decide):
        _check(partition, decision, approval, is_known=rounds is not None)
    if rounds is None or approval is None or not approval.is_asked or _is_over(partition, key, rounds):
        return None
    if isinstance(decision, Expire):
        if max(at, now) < approval.until:
            return None
        outcome, by, rounds = ApprovalState.EXPIRED, approval.by, _expired(rounds, approval, now)
    else:
        if at >= approval.until:
            return None
        outcome, by = ApprovalState(decision.decision), decision.by
        rounds = _as_decided(rounds, approval, decision, now)
        if not fits(rounds, beside_of(partition, key)):
            raise _refused(decision, "arguments: the calls of this answer are too large together")
    call = next(one for one in rounds.calls if one.id == decision.wait_id)
    trace = trace_of(partition, key, rounds.at)
    headers = () if trace is None else trace.headers_of_call(settings, call.id)
    outputs = (call_record(settings, key, rounds, call, now, headers),) if call in rounds.missing else ()
    return Decided(rounds, outputs, (audit_of_approval(key, rounds, outcome, by, call, now),))


def _check(partition: Partition, decision: Decide, approval: Approval | None, *, is_known: bool) -> None:
    """Raise `WireError` for a decision about no wait, or of others than those who decide."""
    key = (decision.user_id, decision.request_id)
    if approval is None:
        if not is_known and partition.ownership.store.get(Table.ENDED, records.key(*key)) is not None:
            return
        raise _refused(decision, f"wait_id: request {key[1]} of {key[0]} does not wait for {decision.wait_id}")
    desk, _, name = decision.by.partition("/")
    if desk != approval.by or (desk == BY_USER and name != decision.user_id):
        raise _refused(decision, f"by: {approval.by} decides about this call")


def _expired(rounds: ToolRounds, approval: Approval, now: int) -> ToolRounds:
    approval = msgspec.structs.replace(approval, state=ApprovalState.EXPIRED)
    if _is_of_program(approval):
        return rounds.with_approval(approval).answered(_told(approval))
    if approval.is_made_at_last:
        return _made(rounds, approval, now)
    return rounds.with_approval(approval).answered(ToolOutcome(approval.call_id, NOT_APPROVED))


def _as_decided(rounds: ToolRounds, approval: Approval, decision: Decide, now: int) -> ToolRounds:
    state = ApprovalState(decision.decision)
    approval = msgspec.structs.replace(approval, state=state, decided_by=decision.by)
    if _is_of_program(approval) and (state is ApprovalState.REJECTED or decision.arguments is None):
        return rounds.with_approval(approval).answered(_told(approval, decision.reason))
    if state is ApprovalState.REJECTED:
        reason = f": {decision.reason}" if decision.reason else ""
        outcome = ToolOutcome(approval.call_id, f"error: rejected by {decision.by}{reason}")
        return rounds.with_approval(approval).answered(outcome)
    if decision.arguments is not None:
        if why := arguments_mistake(decision.arguments, approval.parameters):
            raise _refused(decision, f"arguments: {why}")
        call = next(one for one in rounds.calls if one.id == approval.call_id)
        approval = msgspec.structs.replace(approval, asked=call.arguments)
    if _is_of_program(approval):
        told = _told(approval, decision.reason, decision.arguments)
        return rounds.with_approval(approval, decision.arguments).answered(told)
    return _made(rounds, approval, now, decision.arguments)


def _is_of_program(approval: Approval) -> bool:
    """Whether the decision is the result, so that no call is made by it."""
    return not approval.time_ms


def _told(approval: Approval, reason: str | None = None, arguments: str | None = None) -> ToolOutcome:
    """The decision as the result that a program reads."""
    told = {"decision": approval.state.value, "by": approval.decided_by, "reason": reason or ""}
    edited = {} if arguments is None else {"arguments": msgspec.json.decode(arguments)}
    return ToolOutcome(approval.call_id, records.encode({**told, **edited}).decode())


def _made(rounds: ToolRounds, approval: Approval, now: int, arguments: str | None = None) -> ToolRounds:
    """The rounds with a call that is made now."""
    return rounds.with_approval(msgspec.structs.replace(approval, until=now + approval.time_ms), arguments)


def _approval(rounds: ToolRounds, call_id: str) -> Approval | None:
    return next((one for one in rounds.approvals if one.call_id == call_id), None)


def _is_over(partition: Partition, key: RequestKey, rounds: ToolRounds) -> bool:
    """Whether the answer is about to end: it is stopped, erased, or woken although nobody has decided."""
    ownership = partition.ownership
    inflight, head = ownership.inflight_requests.get(key), ownership.sleepers.head(key)
    if inflight is not None and inflight.stop.reason is not None:
        return True
    if head is not None and (head.is_stopped or (head.state is Sleep.AWAKE and inflight is None)):
        return True
    return ownership.marks.of(key[0], rounds.conversation_id).cover(rounds.at)


def _refused(decision: Decide, message: str) -> WireError:
    return WireError(ErrorCode.INVALID_REQUEST, message, user_id=decision.user_id)
