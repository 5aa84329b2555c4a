"""A message while an answer runs: what a request with `while_busy` does to earlier ones of its conversation.

It is decided at the owner when the request's record is read, in the order of the topic, and what it decides about
another answer stands in that one's plan, before its end. So a successor decides the same, whatever it reads first.

    reject      if one of them runs or queues, the request ends with an error at once, outside of its conversation's
                order. One that is stopped, or whose end is written, is over.
    interrupt   they end as cancelled, and their texts stay. The request waits for their commits, and sees their turns.
    rollback    the same, and nothing of them is remembered.

One that sleeps is woken to end, and its rows have its plan: no result wakes it first, and no approval is asked for any
more. Its waking record comes behind the request, which waits for its end; so the request ends it from its rows, at its
own turn. Then that record finds it over. A request whose time is still to come is not earlier.

A request beyond its user's share is parked unread (app/delivery/open_records.py). It is read for this alone, and stops
what has come; what is parked before it is stopped when it is read. Where an earlier one runs or queues it is not parked
to be rejected later. Nor is a record that wakes an answer to end. Of what is parked no conversation is known, so behind
that alone a request with `reject` is parked, too, and decided when it is read again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from app.answering.run import RequestRefused, Run
from app.answering.stage import Decide, Feature, Stage
from app.delivery.accepted import Accepted, RequestKey
from app.delivery.inflight import InFlight
from app.delivery.partition import Partition
from app.delivery.record import Record
from app.delivery.sleepers import former_of, record_of
from app.features.waits.wake import Woken, commit, stop
from app.wire.codec import WOKEN_HEADER, trace_headers_of
from app.wire.error import ErrorCode, WireError
from app.wire.event import SUPERSEDED, Plan
from app.wire.request import Request, WhileBusy
from models.interface.generation import End, FinishReason
from tables.asleep import Sleeper, WaitKind

Conversation = tuple[str, str]
Read = Callable[[Record], Request]
Work = Coroutine[Any, Any, None]
_WORDS = tuple(word.value.encode() for word in (WhileBusy.REJECT, WhileBusy.INTERRUPT, WhileBusy.ROLLBACK))
_OVER = FinishReason.CANCELLED
FROM_ROWS = -1
"""The offset of the record of an answer that ends from its rows: its end commits none."""


class Superseded(NamedTuple):
    """Which later request ends an answer, and whether nothing of it is remembered."""

    by: str
    rolled_back: bool

    @staticmethod
    def of(plan: Plan) -> Superseded | None:
        return None if plan.superseded is None else Superseded(plan.superseded, plan.rolled_back)

    def plan(self, plan: Plan) -> Plan:
        return msgspec.structs.replace(plan, superseded=self.by, rolled_back=self.rolled_back)


@dataclass(frozen=True, slots=True)
class Later:
    """A request that ends earlier ones."""

    request_id: str
    rolls_back: bool
    offset: int

    def over(self, before: Superseded | None) -> Superseded:
        """What is decided of an answer that it ends. The first one counts, but for one that rolls back."""
        if before is not None and (before.rolled_back or not self.rolls_back):
            return before
        return Superseded(self.request_id, self.rolls_back)


@dataclass(slots=True)
class _Parked:
    """The last parked request of a conversation that interrupts, and the last one that rolls back."""

    last: dict[bool, Later] = field(default_factory=dict)

    def behind(self, offset: int) -> list[Later]:
        """Those that are parked behind this offset, first those that roll back."""
        return [one for rolls_back in (True, False) if (one := self.last.get(rolls_back)) and one.offset > offset]


class ConversationOrder(Feature):
    def __init__(self) -> None:
        self.rejected: WeakSet[InFlight] = WeakSet()
        """Those that have to end at once, in no order."""
        self._superseded: WeakKeyDictionary[InFlight, Superseded] = WeakKeyDictionary()
        self.first: WeakKeyDictionary[InFlight, list[InFlight]] = WeakKeyDictionary()
        """What a request has woken, and ends at its own turn."""
        self.parked: WeakKeyDictionary[Partition, dict[Conversation, _Parked]] = WeakKeyDictionary()

    @property
    def is_on(self) -> bool:
        return False

    def stage(self, run: Run) -> Stage | None:
        return Rejected(run) if run.inflight in self.rejected else None

    def admit(self, partition: Partition, inflight: InFlight, read: Read) -> None:
        """The request is read: decide what it does to earlier ones, and what a later one has done to it."""
        accepted = inflight.accepted
        rule = accepted.request.while_busy
        if (decided := _decided(accepted)) is not None:
            self._supersede(inflight, decided)
        if partition in self.parked:
            self._meet_parked(partition, inflight)
        if rule is WhileBusy.REJECT and _is_rejected(partition, accepted):
            self.rejected.add(inflight)
        elif rule.supersedes and accepted.sleeper is None:
            later = Later(accepted.request.request_id, rule is WhileBusy.ROLLBACK, accepted.record.offset)
            self._end_lane(partition, accepted.conversation, later, inflight)
            keys = self._end_sleepers(partition, accepted.conversation, later)
            if keys:
                self.first[inflight] = [self._from_rows(partition, key, accepted.record, read) for key in keys]

    def rolls_back(self, inflight: InFlight) -> bool:
        """Whether a later request has ended the request, and nothing of it is to be remembered."""
        decided = self._superseded.get(inflight)
        return decided is not None and decided.rolled_back

    async def answer_in_turn(self, inflight: InFlight, answer: Callable[[InFlight], Work]) -> None:
        """End what the request has woken, then answer it."""
        for one in (*self.first.pop(inflight), inflight):
            await answer(one)

    def parks(self, partition: Partition, record: Record, read: Read) -> bool:
        """Whether a request beyond its user's share may be parked. It is read if it may be about others, or wakes an
        answer that has to end: that needs no room, and its user waits for it.
        """
        if any(name == WOKEN_HEADER for name, _ in record.headers):
            return not _ends_at_once(partition, record, read)
        if record.value is None or not any(word in record.value for word in _WORDS):
            return True
        try:
            request = read(record)
        except WireError:
            return True
        rule, key = request.while_busy, (request.user_id, request.request_id)
        conversation = (request.user_id, request.conversation_id)
        is_later = request.not_before is not None and request.not_before > partition.ownership.clock.now()
        if is_later or partition.ownership.known(key, record.timestamp) or partition.ownership.sleepers.head(key):
            return True
        if rule is WhileBusy.REJECT:
            return not any(_runs(partition, one) for one in partition.lanes.items(conversation))
        if rule.supersedes:
            later = Later(request.request_id, rule is WhileBusy.ROLLBACK, record.offset)
            self._park(partition, conversation, later)
            self._end_lane(partition, conversation, later)
            self._end_sleepers(partition, conversation, later)
        return True

    def _park(self, partition: Partition, conversation: Conversation, later: Later) -> None:
        parked = self.parked.setdefault(partition, {}).setdefault(conversation, _Parked())
        before = parked.last.get(later.rolls_back)
        if before is None or before.request_id != later.request_id:
            parked.last[later.rolls_back] = later

    def _meet_parked(self, partition: Partition, inflight: InFlight) -> None:
        """End the request if a parked one behind it ends it. What is not parked any more has done so itself."""
        accepted, of_partition = inflight.accepted, self.parked[partition]
        parked = of_partition.get(accepted.conversation)
        if parked is None:
            return
        parked.last = {
            kind: one
            for kind, one in parked.last.items()
            if partition.records.is_parked(accepted.record.key, one.offset)
        }
        if not parked.last:
            del of_partition[accepted.conversation]
            if not of_partition:
                del self.parked[partition]
        # One that has slept was there before what is parked, although its waking record came later.
        offset = accepted.record.offset if accepted.sleeper is None else -1
        for later in parked.behind(offset):
            self._supersede_by(inflight, later)

    def _end_lane(
        self, partition: Partition, conversation: Conversation, later: Later, mine: InFlight | None = None
    ) -> None:
        for one in partition.lanes.items(conversation):
            is_here = partition.ownership.inflight_requests.get(one.key) is one
            if one is not mine and is_here and one.accepted.record.offset < later.offset:
                self._supersede_by(one, later)

    def _end_sleepers(self, partition: Partition, conversation: Conversation, later: Later) -> list[RequestKey]:
        """Wake those of the conversation that sleep, or wake already, to end."""
        sleepers, (user, name) = partition.ownership.sleepers, conversation
        if not sleepers.some.is_set():
            return []
        keys = dict.fromkeys((*(key for key, _ in sleepers.all(user)), *sleepers.under_way))
        woken = {}
        for key in keys:
            sleeper = sleepers.get(key)
            if sleeper is None or (key[0], sleeper.head.conversation_id) != (user, name):
                continue
            if sleeper.head.kind is WaitKind.TOOL and key not in partition.ownership.inflight_requests:
                woken[key] = _ended(partition, key, sleeper, later)
        if woken:
            partition.spawn(commit(partition, tuple(woken), tuple(woken.values())))
        return [*woken]

    def _from_rows(self, partition: Partition, key: RequestKey, record: Record, read: Read) -> InFlight:
        """The answer in flight, to be ended by the request of the `record`."""
        ownership = partition.ownership
        sleeper = ownership.sleepers.get(key)
        assert sleeper is not None
        former = former_of(key, sleeper, ownership.former_of(key, record), partition.number)
        own = dataclasses.replace(record_of(sleeper, record), offset=FROM_ROWS, key=sleeper.answer.key)
        accepted = Accepted(own, read(own), sleeper.head.at, former, sleeper=sleeper)
        inflight = InFlight(accepted, trace_headers=trace_headers_of(own.headers))
        if (decided := _decided(accepted)) is not None:
            self._supersede(inflight, decided)
        ownership.inflight_requests[key] = inflight
        return inflight

    def _supersede_by(self, inflight: InFlight, later: Later) -> None:
        self._supersede(inflight, later.over(self._superseded.get(inflight)))

    def _supersede(self, inflight: InFlight, decided: Superseded) -> None:
        self._superseded[inflight] = decided
        inflight.before_end = self._end
        inflight.stop.now(FinishReason.CANCELLED)

    async def _end(self, run: Run, end: End) -> End:
        """What is decided of the answer stands in its plan before its end."""
        decided, answer = self._superseded[run.inflight], run.answer
        plan = decided.plan(answer.plan)
        answer.plan = msgspec.structs.replace(plan, superseded=None)  # rows may have it, and the log has to
        await answer.decide(plan)  # first: what readers have been told, a next owner decides, too
        await answer.notice(SUPERSEDED, "a later request ends the answer", decided._asdict())
        return end if end.reason is FinishReason.FILTERED else dataclasses.replace(end, reason=_OVER, calls=())


class Rejected(Stage):
    """Of a request that is not answered while others are."""

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        del plan, then
        raise RequestRefused(
            ErrorCode.CONVERSATION_BUSY, "an earlier request of this conversation is not over; send it again then"
        )


def _decided(accepted: Accepted) -> Superseded | None:
    """What stands in the log or in the rows about the answer."""
    of_rows = None if accepted.sleeper is None else Superseded.of(accepted.sleeper.answer.plan)
    return Superseded.of(accepted.former.plan) or of_rows


def _is_rejected(partition: Partition, accepted: Accepted) -> bool:
    """Whether others of its conversation run or queue; what a former owner has told its sender stands."""
    former = accepted.former
    if former.end is not None:
        return former.end.error is not None and former.end.error.code == ErrorCode.CONVERSATION_BUSY
    if former.has_begun or former.plan.is_made or accepted.sleeper is not None:
        return False
    return any(_runs(partition, one) for one in partition.lanes.items(accepted.conversation))


def _ends_at_once(partition: Partition, record: Record, read: Read) -> bool:
    """Whether the answer that the record wakes is cancelled, erased, or beyond its deadline."""
    try:
        request = read(record)
    except WireError:
        return False
    head = partition.ownership.sleepers.head((request.user_id, request.request_id))
    is_late = head is not None and head.deadline is not None and head.deadline <= partition.ownership.clock.now()
    return head is not None and (head.is_stopped or is_late)


def _runs(partition: Partition, one: InFlight) -> bool:
    """Whether the request runs or queues, and its end is not there yet."""
    is_here = partition.ownership.inflight_requests.get(one.key) is one
    return is_here and one.stop.reason is None and one.written_end is None


def _ended(partition: Partition, key: RequestKey, sleeper: Sleeper, later: Later) -> Woken:
    """What wakes the answer to end, and its plan in its rows."""
    decided = later.over(Superseded.of(sleeper.answer.plan))
    kept = msgspec.structs.replace(sleeper.answer, plan=decided.plan(sleeper.answer.plan))
    changes = partition.ownership.sleepers.put(key, msgspec.structs.replace(sleeper, answer=kept))
    woken = stop(partition, key)
    assert woken is not None
    return woken._replace(changes=(*changes, *woken.changes))
