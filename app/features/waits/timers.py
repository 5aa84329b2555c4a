"""Requests that are not answered before a time (`not_before`).

One whose time was to come when it was sent falls asleep at its admission, with its record alone: no memory, no lane, no
slot. It does so even if it is due by then, because no worker ran or a former owner has let it sleep without committing
that: later requests may have been answered meanwhile, and its place is behind them. When it is due, it wakes as any
answer that sleeps, and from then on it is as a request that is sent then: its conversation, its quota and its deadline
are of that moment. Its end deletes its row. One that is cancelled or erased wakes at once, to
end as cancelled.
"""

from __future__ import annotations

from collections.abc import Callable

from app.answering.kept import Kept
from app.answering.run import RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Round, Stage
from app.delivery.accepted import Accepted
from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlight, Outcome
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition
from app.delivery.record import REQUESTS
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.sleep import MAX_VALUE_BYTES, has_room, without_rows
from app.features.waits.states import TIMER, state_record, wait_of
from app.wire.error import ErrorCode
from app.wire.event import WAITING, WOKEN, EventType, Notice, Plan
from tables.asleep import Head, KeptAnswer, Sleep, Sleeper, WaitKind

MAX_AHEAD_MS = 366 * 86_400_000


class LaterRequests(Feature):
    def __init__(self, tools: ToolsOverKafka) -> None:
        self._tools = tools

    @property
    def is_on(self) -> bool:
        return False

    def stage(self, run: Run) -> Stage | None:
        return None if run.accepted.request.not_before is None else OnTime(run, self)

    def holds(self, partition: Partition, inflight: InFlight, admit: Callable[[], None]) -> bool:
        """Whether the request falls asleep; if it is stopped before it does, `admit` is called after all."""
        accepted, ownership = inflight.accepted, partition.ownership
        not_before = accepted.request.not_before
        if not_before is None or not_before <= accepted.at or accepted.former.has_begun or accepted.former.plan.at:
            return False
        if len(accepted.record.value or b"") > MAX_VALUE_BYTES or self.refusal(ownership, accepted) is not None:
            return False
        partition.spawn(self._fall_asleep(partition, inflight, admit), about=accepted.record)
        return True

    def refusal(self, ownership: Ownership, accepted: Accepted) -> RequestRefused | None:
        """Why the request cannot wait for its time; None if it can, has waited, or need not."""
        request, has_waited = accepted.request, ownership.sleepers.head(accepted.key) is not None
        ahead_ms = (request.not_before or 0) - accepted.at
        if has_waited or accepted.sleeper is not None:
            return None
        if (rules := self._tools.waits) is None:
            message = "not_before: the service's policy has no table [waits]"
            return RequestRefused(ErrorCode.INVALID_REQUEST, message)
        if ahead_ms > MAX_AHEAD_MS:
            return RequestRefused(ErrorCode.INVALID_REQUEST, "not_before: at most 366 days ahead")
        is_due, calls = accepted.at + ahead_ms <= ownership.clock.now(), self._tools.calls_of(ownership)
        if is_due or has_room(ownership.sleepers, calls, rules, request.user_id, request.tenant):
            return None
        return RequestRefused(ErrorCode.OVERLOADED, "too many requests and answers wait; try again later")

    async def _fall_asleep(self, partition: Partition, inflight: InFlight, admit: Callable[[], None]) -> None:
        """From the step that puts the commit on, the request is not in flight, but asleep."""
        accepted, ownership = inflight.accepted, partition.ownership
        key, sleepers, sleeper = accepted.key, ownership.sleepers, _sleeper_of(accepted, ownership)
        wait = wait_of(key, sleeper.head)
        notice = Notice(WAITING, "the request waits for its time", dict(wait.details))
        event = accepted.event(EventType.NOTICE, 0, notice=notice)
        token_log = ownership.token_log
        await token_log.delivered([await token_log.send(event, accepted.record.key, inflight.trace_headers)])
        if inflight.stop.reason is not None:
            admit()
            return
        output = state_record(partition.context.settings, key, sleeper.head)
        commit = Commit(accepted.record, sleepers.put(key, sleeper), (output,))
        self._tools.calls_of(ownership).schedule.add(key, sleeper.head)
        partition.release(inflight)
        await partition.commit(commit, urgent=True)
        sleepers.settle([(key, sleeper)])


class OnTime(Stage):
    """Of a request with a time that has come, and of one that is refused for it."""

    def __init__(self, run: Run, timers: LaterRequests) -> None:
        super().__init__(run)
        self._timers = timers
        self._head = None if run.accepted.sleeper is not None else run.ownership.sleepers.head(run.key)

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        run = self.run
        if (refused := self._timers.refusal(run.ownership, run.accepted)) is not None:
            raise refused
        if (run.accepted.request.not_before or 0) > run.ownership.clock.now():
            raise RequestRefused(ErrorCode.OVERLOADED, "this request cannot wait: too many did, or it is too large")
        return await then(plan)

    async def round(self, then: Round) -> Ending:
        if self._head is not None and not self.run.accepted.former.is_admitted:
            await self.run.answer.notice(WOKEN, "the time of the request has come", {"kind": TIMER})
        return await then()

    def leave(self, kept: Kept) -> Kept:
        return kept if self._head is None else without_rows(self.run, kept, self._head)

    def committed(self, outcome: Outcome) -> None:
        del outcome
        if self._head is not None:
            self.run.ownership.sleepers.settle([(self.run.key, None)])


def _sleeper_of(accepted: Accepted, ownership: Ownership) -> Sleeper:
    record, request, now = accepted.record, accepted.request, ownership.clock.now()
    before = ownership.sleepers.head(accepted.key)
    head = Head(
        state=Sleep.ASLEEP,
        kind=WaitKind.TIMER,
        conversation_id=request.conversation_id,
        tenant=request.tenant,
        until=request.not_before or 0,
        at=accepted.at,
        slept_at=now,
        since=now if before is None else before.since,
        wakes=0 if before is None else before.wakes,
        size=len(record.value or b""),
        told_at=now,
        epoch=ownership.epoch,
        tokens_offset=ownership.offsets[REQUESTS].began(record.offset),
    )
    return Sleeper(head, record.value, KeptAnswer(record.timestamp, record.key, tuple(record.headers)))
