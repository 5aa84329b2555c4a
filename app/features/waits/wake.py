"""Answers that sleep are woken: their record is on `requests` again.

One transaction writes the head of the rows and the record, so that there is one wake for what causes it: the last
result, the time, a cancel, an erasure. The record is read by the group like any other, so a woken answer is an open
request like any other: order, slots, attempts and handover know nothing of sleep.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from app.delivery.accepted import RequestKey
from app.delivery.commits.commit import Commit
from app.delivery.partition import Partition
from app.delivery.record import REQUESTS, Outgoing, Record
from app.features.recall.erased import without_erased
from app.features.waits.states import state_record
from app.wire.audit import AuditRecord
from app.wire.codec import WOKEN_HEADER
from tables.asleep import Sleep, WaitKind
from tables.erasures import Scope
from tables.records import Erased, RowChange
from tables.tool_calls import NO_ROUNDS, ToolRounds

_AT_ONCE = 200
_AGAIN_S = 0.1


class Woken(NamedTuple):
    changes: tuple[RowChange, ...]
    outputs: tuple[Outgoing, ...]
    audit: tuple[AuditRecord, ...] = ()


def wake(partition: Partition, key: RequestKey, rounds: ToolRounds = NO_ROUNDS, *, stops: bool = False) -> Woken:
    """Decide that the answer wakes with these rounds; one that `stops` ends as cancelled."""
    sleepers, settings = partition.ownership.sleepers, partition.context.settings
    sleeper, now = sleepers.get(key), partition.ownership.clock.now()
    assert sleeper is not None
    is_sent_now = sleeper.head.kind is WaitKind.TIMER and not stops
    head = msgspec.structs.replace(
        sleeper.head,
        state=Sleep.AWAKE,
        at=now if is_sent_now else sleeper.head.at,
        woken_at=now,
        wakes=sleeper.head.wakes + 1,
        is_stopped=sleeper.head.is_stopped or stops,
    )
    kept = sleeper.answer
    headers = (*kept.headers, (WOKEN_HEADER, str(head.wakes).encode()))
    record = Outgoing(settings.topic(REQUESTS), kept.key, sleeper.value, headers)
    return Woken((sleepers.decide(key, head),), (record, state_record(settings, key, head, rounds)))


def wake_with(partition: Partition, key: RequestKey, rounds: ToolRounds) -> Woken:
    """What goes with these rounds of an answer: if it sleeps, it wakes with the last result."""
    head = partition.ownership.sleepers.head(key)
    if head is None or head.state is Sleep.AWAKE:
        return Woken((), ())
    if not rounds.missing:
        return wake(partition, key, rounds)
    changes: tuple[RowChange, ...] = ()
    until = min(rounds.due_at, head.deadline or rounds.due_at)
    if until != head.until:
        head = msgspec.structs.replace(head, until=until)
        changes = (partition.ownership.sleepers.decide(key, head),)
    return Woken(changes, (state_record(partition.context.settings, key, head, rounds),))


def beside_of(partition: Partition, key: RequestKey) -> int:
    """How many bytes the turn of an answer keeps beside its rounds."""
    inflight, head = partition.ownership.inflight_requests.get(key), partition.ownership.sleepers.head(key)
    if inflight is not None and inflight.answer is not None:
        return inflight.answer.beside_bytes
    return 0 if head is None else head.beside


def stop(partition: Partition, key: RequestKey) -> Woken | None:
    """Decide that the answer ends as cancelled, whether it sleeps or wakes; None if it has not slept."""
    sleepers = partition.ownership.sleepers
    head = sleepers.head(key)
    if head is None:
        return None
    if head.state is Sleep.ASLEEP:
        return wake(partition, key, stops=True)
    return Woken((sleepers.decide(key, msgspec.structs.replace(head, is_stopped=True)),), ())


async def commit(
    partition: Partition,
    keys: Iterable[RequestKey],
    woken: Iterable[Woken],
    record: Record | None = None,
    *,
    urgent: bool = True,
) -> None:
    """Commit what is decided about these answers."""
    sleepers = partition.ownership.sleepers
    decided = [(key, sleepers.under_way[key]) for key in keys if key in sleepers.under_way]
    woken = tuple(woken)
    changes = tuple(change for one in woken for change in one.changes)
    outputs = tuple(output for one in woken for output in one.outputs)
    audit = tuple(one for each in woken for one in each.audit)
    await partition.commit(Commit(record, changes, outputs, audit), urgent=urgent)
    sleepers.settle(decided)


async def wake_erased(partition: Partition, scope: Scope, mark: Erased) -> None:
    """Wake what the mark covers, and return when all of it has ended. What others have recalled of it leaves their
    rows: no token of their next round depends on that.
    """
    sleepers = partition.ownership.sleepers
    while sleepers.some.is_set():
        await _drop_recalled(partition, scope.user_id)
        left = [
            (key, head)
            for key, head in sleepers.all(scope.user_id)
            if head.at <= mark.at and scope.includes(scope.user_id, head.conversation_id)
        ]
        keys = [key for key, head in left if head.state is Sleep.ASLEEP][:_AT_ONCE]
        if keys:
            await commit(partition, keys, [wake(partition, key, stops=True) for key in keys])
        elif not left and not any(key[0] == scope.user_id for key in sleepers.under_way):
            return
        await asyncio.sleep(_AGAIN_S)


async def _drop_recalled(partition: Partition, user_id: str) -> None:
    sleepers, marks = partition.ownership.sleepers, partition.ownership.marks
    for key in [key for key, _ in sleepers.all(user_id)]:
        if (sleeper := sleepers.get(key)) is not None:
            plan = without_erased(sleeper.answer.plan, marks, user_id)
            if plan is not sleeper.answer.plan:
                answer = msgspec.structs.replace(sleeper.answer, plan=plan)
                changes = sleepers.put(key, msgspec.structs.replace(sleeper, answer=answer))
                await commit(partition, [key], [Woken(changes, ())])
