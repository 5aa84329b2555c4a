"""The agent on `requests`: each record gets one outcome.

record -> not a valid request: an error event, and a dead letter
-> known: nothing but its offset
-> accepted: it waits for earlier requests of its conversation, then app/answering answers it
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial

import msgspec

from app.answering.containment import Containment
from app.answering.job import PRIORITIES
from app.answering.kept import refusal_of, refused_user
from app.delivery.accepted import Accepted, Former, RequestKey
from app.delivery.cancels import Cancels
from app.delivery.commits.commit import Commit
from app.delivery.dead_letters import error_of_unexpected
from app.delivery.escalation import ESCALATING
from app.delivery.inflight import InFlight
from app.delivery.observer import Observer
from app.delivery.ownership import Ownership
from app.delivery.partition import Partition
from app.delivery.record import Record
from app.delivery.resume.quarantine import Attempt, AttemptCount, lost_attempts
from app.delivery.sleepers import former_of, record_of
from app.features.order import Features
from app.foreign.source import source_of
from app.kafka.broker_clock import BrokerClock
from app.settings import Settings
from app.wire.codec import WOKEN_HEADER, explained, ignored_fields, read_request, trace_headers_of
from app.wire.error import WireError
from app.wire.event import TokenEvent
from app.wire.request import Request
from app.wire.validation import check_partition, validate_request, with_tenant
from models.interface.fair_slots import payers_of
from models.interface.generation import FinishReason
from tables.asleep import Sleep, Sleeper, WaitKind


@dataclass(eq=False)
class Requests:
    settings: Settings
    containment: Containment
    cancels: Cancels
    observer: Observer
    features: Features

    def receive(self, partition: Partition, record: Record) -> None:
        """Called in offset order, again after each take-over; must not block."""
        ownership, sleeper, arrived = partition.ownership, None, record
        at = asked_at(record, ownership.clock)
        try:
            request = self.read(record)
            key = (request.user_id, request.request_id)
            if ownership.sleepers.some.is_set() and (sleeper := ownership.sleepers.get(key)) is not None:
                record = record_of(sleeper, record)
                request = self.read(record)
        except WireError as error:
            self._refuse(partition, record, error, at)
            return
        if _sleeps_on(ownership, key, sleeper, arrived) if sleeper is not None else ownership.known(key, at):
            partition.spawn(partition.commit(Commit(record)))
            return
        inflight = _accepted(partition, ownership, record, request, at, sleeper)
        inflight.stop.is_cancelled = sleeper is not None and sleeper.head.is_stopped
        try:
            self._admit(partition, inflight)
        except ESCALATING:
            raise
        except Exception as error:  # noqa: BLE001 - of this request
            partition.lanes.withdraw(inflight.accepted.conversation, inflight)
            partition.spawn(self.containment.end_contained(partition, inflight, error))

    def read(self, record: Record) -> Request:
        """The valid request in the record; raises `WireError`."""
        try:
            record.check_readable()
            request = read_request(
                record.value, record.headers, key=record.key, partition=record.partition, offset=record.offset
            )
            validate_request(request, record.key, max_prompt_bytes=self.settings.max_prompt_bytes)
            check_partition(request, record.partition, self.settings.partitions)
            request = with_tenant(request)
            if request.agent is not None:
                request = self.features.agents.read(request)
        except WireError as error:
            raise explained(error, record.value, record.headers) from None
        except Exception as error:  # noqa: BLE001 - of this record
            raise error_of_unexpected(record, error) from None
        # Nothing here reads the metadata, and as Python objects it takes many times its size in bytes.
        return msgspec.structs.replace(request, metadata=None)

    def _admit(self, partition: Partition, inflight: InFlight) -> None:
        accepted, stop, ownership = inflight.accepted, inflight.stop, partition.ownership
        ownership.inflight_requests[accepted.key] = inflight
        if self.cancels.remembered and (on_commit := self.cancels.pop(accepted.key)):
            stop.is_cancelled = True
            inflight.on_commit.append(on_commit)
        marks = ownership.marks.of(*accepted.conversation)
        if stop.is_cancelled or marks.forbid(accepted.at, accepted.former.begun_at):
            stop.now(FinishReason.CANCELLED)
        is_for_later = accepted.request.not_before is not None and stop.reason is None
        if is_for_later and self.features.timers.holds(partition, inflight, partial(self._admit, partition, inflight)):
            return
        if accepted.may_order or self.features.busy.parked:
            self.features.busy.admit(partition, inflight, self.read)
        self.observer.admitted(partition.number, inflight)
        left_s = _left_s(accepted, ownership.clock.now())
        if left_s is not None and left_s <= 0:
            stop.now(FinishReason.DEADLINE)
        elif left_s is not None:
            stop.after(left_s, FinishReason.DEADLINE)
        stop.listen(partial(self._end_soon, partition, inflight))
        self._queue(partition, inflight)
        if stop.reason is not None:
            self._end_soon(partition, inflight, stop.reason)

    def _queue(self, partition: Partition, inflight: InFlight) -> None:
        """Answer the request when earlier ones of its conversation are committed."""
        accepted, lanes, busy = inflight.accepted, partition.lanes, self.features.busy
        request = accepted.request
        payers = payers_of(request.tenant or "", request.user_id)
        answer = partial(self.containment.answer, partition, inflight)
        if inflight in busy.rejected:
            partition.spawn(answer(), about=accepted.record)
            return
        if inflight in busy.first:
            answer = partial(busy.answer_in_turn, inflight, partial(self.containment.answer, partition))
        lanes.add(accepted.conversation, inflight, answer, PRIORITIES[request.priority], payers)
        front = lanes.front(accepted.conversation)
        if front is not None and front is not inflight and front.is_committing:
            partition.context.queue.hurry()
        else:
            partition.hurry_for_slots()

    def _end_soon(self, partition: Partition, inflight: InFlight, _reason: FinishReason) -> None:
        """A request that is stopped in its queue ends after those before it, so that `turns` keep the order of the
        conversation, but waits for no slot: no model reads it.
        """
        partition.lanes.hurry(inflight.accepted.conversation, inflight)

    def _refuse(self, partition: Partition, record: Record, error: WireError, at: int) -> None:
        ownership = partition.ownership
        key = (refused_user(record, error), error.request_id or "")
        known = ownership.known(key, at)
        commit, event = refusal_of(record, error, known=known, settings=self.settings, now=ownership.clock.now())
        if event is None:
            partition.spawn(partition.commit(commit), about=record)
            return
        ownership.refused.add(key)  # a second request with this id is a duplicate from now on
        commit = commit.beside(self.containment.refused(partition, record, event))
        is_reported = ownership.former_of(key, record).end is not None
        report = self._report_refusal(partition, record, commit, event, is_reported=is_reported)
        partition.spawn(report, about=record)

    async def _report_refusal(
        self, partition: Partition, record: Record, commit: Commit, event: TokenEvent, *, is_reported: bool
    ) -> None:
        if not is_reported:
            token_log = partition.ownership.token_log
            await (await token_log.send(event, record.key, trace_headers_of(record.headers)))
        await partition.commit(commit)
        partition.ownership.refused.discard((event.user_id or "", event.request_id or ""))
        self.observer.refused(record, event)


def asked_at(record: Record, clock: BrokerClock) -> int:
    """When the request was sent, in Unix milliseconds: of one that was a foreign record, that record's time."""
    at, source = clock.time_of(record.timestamp), source_of(record.headers) if record.headers else None
    return at if source is None else min(at, clock.time_of(source.timestamp))


def _sleeps_on(ownership: Ownership, key: RequestKey, sleeper: Sleeper, record: Record) -> bool:
    """Whether this record of a request that has slept changes nothing: it repeats one that sleeps, or goes on. A repeat
    never stands in for the record that wakes it: that one may be aborted with its transaction.
    """
    wakes = any(name == WOKEN_HEADER for name, _ in record.headers)
    return not wakes or sleeper.head.state is Sleep.ASLEEP or key in ownership.inflight_requests


def _accepted(
    partition: Partition, ownership: Ownership, record: Record, request: Request, at: int, sleeper: Sleeper | None
) -> InFlight:
    """The request, with what the log and its rows hold of it if it was begun before."""
    attempts, key = AttemptCount(), (request.user_id, request.request_id)
    former = ownership.former_of(key, record)
    if sleeper is not None:
        at = sleeper.head.at
    if sleeper is not None and sleeper.head.kind is WaitKind.TIMER:
        sleeper = None  # it is as one that is sent now
    elif sleeper is not None:
        former = former_of(key, sleeper, former, partition.number)
    elif request.not_before is not None:  # it is as one that is sent then, although no worker was there
        sent_at = min(request.not_before, ownership.clock.now())
        record = dataclasses.replace(record, timestamp=max(record.timestamp, sent_at))
    if former.is_replayed:
        attempts = _attempts(partition, key, former)
    asked = at if former.plan.at is None else former.plan.at
    accepted = Accepted(record, request, asked, former, ignored_fields(record.value, record.headers), sleeper)
    traces = trace_headers_of(record.headers)
    return InFlight(accepted, attempts=attempts, trace_headers=traces, epoch=ownership.token_log.epoch)


def _attempts(partition: Partition, key: RequestKey, former: Former) -> AttemptCount:
    last = former.attempt or Attempt(0, former.position)
    lost = lost_attempts(last, former.position)
    lost -= bool(lost) and partition.begun.get(key) == lost  # that attempt was ours, and we are still here
    return AttemptCount(lost, former.position, last.at)


def _left_s(accepted: Accepted, now: int) -> float | None:
    """Seconds until the request's deadline, None if it has none. `now` is the broker's clock in Unix milliseconds."""
    if accepted.request.deadline_ms is None:
        return None
    return (min(accepted.record.timestamp, now) + accepted.request.deadline_ms - now) / 1000
