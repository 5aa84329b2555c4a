"""The records of a partition that this worker has accepted and not finished, and which of them it keeps in memory.

Tenants have shares of that memory, by number and by bytes, and their users have shares of these (fair_slots.py).
Requests beyond them are parked: they are open as all others, but only their offsets are kept, eight bytes each. They
are read from Kafka again, in order, when there is room for more of their user (parked_reader.py). So the topic is read
on past a user's million requests, and past a tenant's thousand users, to those of others.

A request that waits for tools does not count by number: it may wait for an hour, and needs nothing meanwhile but its
memory.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, field

from app.delivery.record import REQUESTS, SOURCES, TURNS, Record
from app.settings import Settings
from app.wire.codec import tenant_in
from app.wire.ids import SEPARATOR, tenant_of
from models.interface.fair_slots import FairSlots, Payer, Payers, payers_of

ROUNDS = {REQUESTS: 32, TURNS: 8}
"""Records held in memory, as multiples of the requests that may run. Kafka is the buffer; the records that remain when
the flow resumes bridge the second or so until the consumer fetches again.
"""
HELD_BYTES = 64 * 1024 * 1024
"""Of a partition's records in memory."""
PARKED_BYTES = 16 * 1024 * 1024
"""Of what is known of parked requests: two million of one user, or one each of 30,000 users. With more, a worker reads
no further.
"""
WAITING_BYTES = 16 * 1024
"""What a request that waits for tools needs beside its record."""
_OFFSET_BYTES = 8
_QUEUE_BYTES = 512
_SPARE = 4096


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many records of each topic a partition holds, and how many bytes."""

    records: dict[str, int]
    size: int = HELD_BYTES

    @classmethod
    def of(cls, settings: Settings) -> Capacity:
        return cls({topic: rounds * settings.max_in_flight for topic, rounds in ROUNDS.items()})


@dataclass(slots=True)
class _Parked:
    """A user's parked requests. `timestamp` is not later than that of the first, Unix milliseconds."""

    payers: Payers
    timestamp: int
    offsets: array[int] = field(default_factory=lambda: array("q"))
    begin: int = 0

    @property
    def first(self) -> int:
        return self.offsets[self.begin]

    def __len__(self) -> int:
        return len(self.offsets) - self.begin

    def __contains__(self, offset: int) -> bool:
        at = bisect_left(self.offsets, offset, lo=self.begin)
        return at < len(self.offsets) and self.offsets[at] == offset

    def add(self, offset: int) -> None:
        insort(self.offsets, offset, lo=self.begin)  # nearly always at the end

    def pop(self) -> int:
        first, self.begin = self.first, self.begin + 1
        if self.begin >= _SPARE and 2 * self.begin >= len(self.offsets):
            del self.offsets[: self.begin]
            self.begin = 0
        return first


class OpenRecords:
    """`wanted` is set when there may be room for a parked request."""

    def __init__(self, capacity: Capacity) -> None:
        self.wanted = asyncio.Event()
        self._capacity = capacity
        self._early: list[Record] = []
        self._early_count = Counter[str]()
        self._early_bytes = Counter[str]()
        self._held: dict[str, dict[int, Record]] = {topic: {} for topic in SOURCES}
        self._bytes = dict.fromkeys(SOURCES, 0)
        self._payers: dict[int, Payers] = {}
        self._slots = FairSlots(capacity.records[REQUESTS])
        self._room = FairSlots(capacity.size)
        self._parked: dict[bytes | None, _Parked] = {}
        self._parked_count = self._parked_bytes = 0
        self._first_parked: int | None = None
        self._lent: dict[int, bytes | None] = {}
        self._lent_users: Counter[bytes | None] = Counter()

    def count(self, topic: str) -> int:
        """All open records of the topic."""
        in_memory = len(self._held[topic]) + self._early_count[topic]
        return in_memory + (self._parked_count if topic == REQUESTS else 0)

    @property
    def parked(self) -> int:
        return self._parked_count

    def size(self, topic: str) -> int:
        """Upper bound of the memory of open records, in bytes."""
        waiting = len(self._lent) * WAITING_BYTES + self._parked_bytes if topic == REQUESTS else 0
        return self._bytes[topic] + waiting

    def filled(self, topic: str) -> float:
        """How much of what may be kept of the topic is kept; at 1 no more of it should be read. What is beyond the
        shares of requests is parked, so those that came early and what is parked count alone.
        """
        if topic != REQUESTS:
            return max(self.count(topic) / self._capacity.records[topic], self._bytes[topic] / self._capacity.size)
        early, early_bytes = self._early_count[topic], self._early_bytes[topic]
        of_early = max(early / self._capacity.records[topic], early_bytes / self._capacity.size)
        return max(of_early, self._parked_bytes / PARKED_BYTES)

    @property
    def oldest_request(self) -> int | None:
        """Timestamp of the oldest open request, Unix milliseconds."""
        early = (record for record in self._early if record.topic == REQUESTS)
        in_memory = [record.timestamp for record in (*self._held[REQUESTS].values(), *early)]
        return min((*in_memory, *(parked.timestamp for parked in self._parked.values())), default=None)

    def add_early(self, record: Record) -> None:
        """It has arrived before the partition is owned."""
        self._early.append(record)
        self._early_count[record.topic] += 1
        self._early_bytes[record.topic] += record.cost
        self._bytes[record.topic] += record.cost

    def hold(self, record: Record) -> None:
        self._held[record.topic][record.offset] = record
        self._bytes[record.topic] += record.cost
        if record.topic == REQUESTS:
            payers = self._payers[record.offset] = _payers_of(record)
            self._slots.hold(payers)
            self._room.hold(payers, record.cost)

    def holds(self, record: Record) -> bool:
        return record.offset in self._held[record.topic]

    def remove(self, record: Record) -> None:
        held = self._held[record.topic].pop(record.offset, None)
        if held is None:
            return
        self._bytes[record.topic] -= held.cost
        if record.topic == REQUESTS:
            self.reclaim(record)
            payers = self._payers.pop(record.offset)
            self._slots.release(payers)
            self._room.release(payers, held.cost)
            self._want()

    def exceeds(self, record: Record) -> bool:
        """Whether the request is beyond its payers' shares, or behind one of its user that is parked."""
        if record.topic != REQUESTS:
            return False
        parked = self._parked.get(record.key)
        return (parked is not None and parked.first < record.offset) or not self._has_room(_payers_of(record))

    def park(self, record: Record) -> None:
        parked = self._parked.get(record.key)
        if parked is None:
            parked = self._parked[record.key] = _Parked(_payers_of(record), record.timestamp)
            self._parked_bytes += _queue_bytes(record.key)
        parked.add(record.offset)
        self._parked_count += 1
        self._parked_bytes += _OFFSET_BYTES
        if self._first_parked is not None:
            self._first_parked = min(self._first_parked, record.offset)
        self._want()

    def first_parked(self) -> int | None:
        """The least offset of all that are parked."""
        if self._first_parked is None:
            self._first_parked = min((parked.first for parked in self._parked.values()), default=None)
        return self._first_parked

    def due(self) -> list[tuple[int, bytes | None]]:
        """The users with parked requests who may double what they hold, each with the offset of its first one; of each
        tenant as many as it has room for.
        """
        left: dict[Payer, int] = {}
        due = []
        for user, parked in self._parked.items():
            tenant = parked.payers[0]
            if tenant not in left:
                doubles = self._may_double(parked.payers[:1])
                left[tenant] = max(1, self._slots.held(tenant)) if doubles else 0
            if left[tenant] > 0 and self._may_double(parked.payers):
                left[tenant] -= 1
                due.append((parked.first, user))
        return due

    def unpark(self, user: bytes | None, timestamp: int | None = None) -> None:
        """The user's next parked request, which is of that time, is parked no longer."""
        parked = self._parked[user]
        if parked.pop() == self._first_parked:
            self._first_parked = None
        parked.timestamp = parked.timestamp if timestamp is None else timestamp
        self._parked_count -= 1
        self._parked_bytes -= _OFFSET_BYTES
        if not len(parked):
            del self._parked[user]
            self._parked_bytes -= _queue_bytes(user)

    def next_parked(self, user: bytes | None) -> int | None:
        """The offset of the user's next parked request, if there is one and there is room for it."""
        parked = self._parked.get(user)
        return parked.first if parked is not None and self._has_room(parked.payers) else None

    def lend(self, record: Record) -> None:
        """The request waits for tools."""
        self._lent[record.offset] = record.key
        self._lent_users[record.key] += 1
        if (payers := self._payers.get(record.offset)) is not None:
            self._slots.release(payers)
            self._room.hold(payers, WAITING_BYTES)
        self._want()

    def reclaim(self, record: Record) -> None:
        if record.offset not in self._lent:
            return
        user = self._lent.pop(record.offset)
        self._lent_users[user] -= 1
        if not self._lent_users[user]:
            del self._lent_users[user]
        if (payers := self._payers.get(record.offset)) is not None:
            self._slots.hold(payers)
            self._room.release(payers, WAITING_BYTES)

    def lent_by(self, user: bytes | None) -> int:
        """How many requests of the user wait for tools."""
        return self._lent_users[user]

    def in_memory(self) -> list[Record]:
        """All open records that are not parked, in the order of their offsets. What is parked may have come again."""
        held = [record for of_topic in self._held.values() for record in of_topic.values()]
        early = [
            record
            for record in self._early
            if record.topic != REQUESTS or not self.is_parked(record.key, record.offset)
        ]
        return sorted([*held, *early], key=lambda record: record.offset)

    def inherit_parked(self, former: OpenRecords, first: int, finished: frozenset[int]) -> int:
        """Keep what was parked under the ownership before, from the offset `first` on, but for what was finished
        elsewhere. Returns the offset behind the last of it.
        """
        last = -1
        for user, parked in former._parked.items():
            offsets = array(
                "q", [one for one in parked.offsets[parked.begin :] if one >= first and one not in finished]
            )
            if offsets:
                last = max(last, offsets[-1])
                self._parked[user] = _Parked(parked.payers, parked.timestamp, offsets)
                self._parked_count += len(offsets)
                self._parked_bytes += _queue_bytes(user) + _OFFSET_BYTES * len(offsets)
        self._want()
        return last + 1

    def is_parked(self, user: bytes | None, offset: int) -> bool:
        parked = self._parked.get(user)
        return parked is not None and offset in parked

    def _has_room(self, payers: Payers) -> bool:
        return self._slots.refused(payers) is None and self._room.refused(payers) is None

    def _may_double(self, payers: Payers) -> bool:
        return self._slots.may_double(payers) and self._room.may_double(payers)

    def _want(self) -> None:
        if self._parked:
            self.wanted.set()


def _payers_of(record: Record) -> Payers:
    """Tenant and user, or the user alone. The record is not decoded yet, and may be anything."""
    user = (record.key or b"").decode(errors="replace") or SEPARATOR
    tenant = tenant_of(user) or tenant_in(record.value, record.headers)
    return payers_of(tenant or "", user)


def _queue_bytes(user: bytes | None) -> int:
    return _QUEUE_BYTES + 2 * len(user or b"")
