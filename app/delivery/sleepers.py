"""The answers of one ownership that sleep or have slept (tables/asleep.py), as they are decided.

A change is decided in one step of the event loop, in which its commit is put, and counts from then on: what reads the
rows between a decision and its commit would decide otherwise. Decisions are kept here until they are in the store.
"""

from __future__ import annotations

import asyncio
import dataclasses
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from app.delivery.accepted import RequestKey
from app.delivery.record import Record
from app.reader.answer import Answer
from app.wire.event import Plan, TokenEvent
from tables.asleep import Head, Sleep, Sleeper, head_in, head_row, heads, no_rows, sleeper_in
from tables.records import RowChange
from tables.store import PartitionStore

SOON_MS = 90_000
"""What is due within this time is known without a scan, of which there is one each minute."""


@dataclass(slots=True)
class Held:
    """How many sleep, of each tenant too, and how many bytes they take."""

    count: int = 0
    size: int = 0
    of_tenant: Counter[str | None] = field(default_factory=Counter)

    def add(self, head: Head, times: int = 1) -> None:
        self.count += times
        self.size += times * head.size
        self.of_tenant[head.tenant] += times


class Sleepers:
    """`some` is set while there may be any: without them, nothing is asked of the table.

    changed: Set when an answer has fallen asleep that is to be woken soon.
    """

    def __init__(self, store: PartitionStore) -> None:
        self.some = asyncio.Event()
        self.changed = asyncio.Event()
        self._store = store
        self._decided: dict[RequestKey, Sleeper | None] = {}
        self.held: Held | None = None
        """None until a scan has counted them."""
        self._due: list[tuple[int, RequestKey]] = []

    def begin(self) -> None:
        """The store is restored."""
        if next(heads(self._store), None) is not None:
            self.some.set()

    def get(self, key: RequestKey) -> Sleeper | None:
        """The answer as decided; None if it has not slept, or has ended."""
        return self._decided[key] if key in self._decided else sleeper_in(self._store, *key)

    def head(self, key: RequestKey) -> Head | None:
        if key in self._decided:
            sleeper = self._decided[key]
            return None if sleeper is None else sleeper.head
        return head_in(self._store, *key) if self.some.is_set() else None

    def is_asleep(self, key: RequestKey) -> bool:
        head = self.head(key)
        return head is not None and head.state is Sleep.ASLEEP

    def put(self, key: RequestKey, sleeper: Sleeper) -> tuple[RowChange, ...]:
        """Decide that the answer sleeps."""
        self._decided[key] = sleeper
        self._count(sleeper.head, 1)
        self.some.set()
        self.watch(key, sleeper.head, sleeper.head.slept_at)
        return sleeper.rows(*key)

    def watch(self, key: RequestKey, head: Head, now: int) -> None:
        """Note when it is to be woken, if that is soon: others are found by a later scan."""
        if head.until - now <= SOON_MS:
            heapq.heappush(self._due, (head.until, key))
            self.changed.set()

    @property
    def next_due(self) -> int | None:
        """When the next one is to be woken, Unix milliseconds; None if that is not soon."""
        return self._due[0][0] if self._due else None

    def pop_due(self, now: int) -> list[RequestKey]:
        """Those that have to be woken by now."""
        keys: dict[RequestKey, None] = {}
        while self._due and self._due[0][0] <= now:
            keys[heapq.heappop(self._due)[1]] = None
        heads = {key: self.head(key) for key in keys}
        return [key for key, head in heads.items() if head is not None and head.is_due(now)]

    def decide(self, key: RequestKey, head: Head) -> RowChange:
        sleeper = self.get(key)
        assert sleeper is not None
        if sleeper.head.state is Sleep.ASLEEP and head.state is Sleep.AWAKE:
            self._count(sleeper.head, -1)
        self._decided[key] = msgspec.structs.replace(sleeper, head=head)
        return head_row(*key, head)

    def _count(self, head: Head, times: int) -> None:
        if self.held is not None:
            self.held.add(head, times)

    def have_room(self, tenant: str | None, *, of_tenant: int, of_all: int, size: int) -> bool:
        """Whether one more of the tenant may sleep."""
        held = self.held
        return held is None or (held.of_tenant[tenant] < of_tenant and held.count < of_all and held.size < size)

    def end(self, key: RequestKey) -> tuple[RowChange, ...]:
        """Decide that the answer has ended."""
        self._decided[key] = None
        return no_rows(*key)

    def decided(self, key: RequestKey) -> Sleeper | None:
        return self._decided.get(key)

    def is_decided(self, key: RequestKey) -> bool:
        """Whether a decision about it is not committed yet."""
        return key in self._decided

    def settle(self, decided: Iterable[tuple[RequestKey, Sleeper | None]]) -> None:
        """These decisions are committed; later ones may have followed."""
        for key, sleeper in decided:
            if key in self._decided and self._decided[key] is sleeper:
                del self._decided[key]

    def all(self, *user_id: str) -> Iterator[tuple[RequestKey, Head]]:
        """Those whose rows are committed, or those of a user, as decided."""
        for key, raw in heads(self._store, *user_id):
            head = self.head(key) if key in self._decided else msgspec.json.decode(raw, type=Head)
            if head is not None:
                yield key, head

    @property
    def under_way(self) -> tuple[RequestKey, ...]:
        """Those about which something is decided and not committed."""
        return tuple(self._decided)

    def answer_of(self, key: RequestKey, partition: int) -> Answer | None:
        """What readers have of an answer, as far as its rows know it."""
        sleeper = self.get(key) if self.some.is_set() else None
        return None if sleeper is None else answer_of(key, sleeper, partition)


def answer_of(key: RequestKey, sleeper: Sleeper, partition: int) -> Answer:
    answer = Answer(*key, sleeper.head.conversation_id, partition=partition)
    answer.segments.extend(sleeper.answer.segments)
    answer.position = sleeper.answer.position
    return answer


def copies_of(sleeper: Sleeper) -> Iterator[TokenEvent]:
    """The events that say again what the answer has said."""
    return (msgspec.structs.replace(segment, copy=True) for segment in sleeper.answer.segments)


def record_of(sleeper: Sleeper, record: Record) -> Record:
    """The record of the request as it came first, in the place of one that wakes it."""
    kept = sleeper.answer
    return dataclasses.replace(record, value=sleeper.value, headers=kept.headers, timestamp=kept.timestamp)


def plan_of(sleeper: Sleeper, plan: Plan) -> Plan:
    """What is decided about it: by its newest notice in the log, or when it fell asleep."""
    return plan if plan.is_made else sleeper.answer.plan
