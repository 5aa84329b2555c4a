"""The records of a partition that this worker has accepted and not finished, and which of them it keeps in memory.

A user has a share of that memory. Requests beyond it are parked: they are open as all others, but only their offsets
are kept. They are read from Kafka again, in order, when the user's earlier ones have ended (parked_reader.py). So the
topic is read on past one user's thousand requests, to those of other users.

A request that waits for tools does not count, neither for its user's share nor for the partition: it may wait for an
hour, and needs nothing meanwhile but its memory.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque

from app.delivery.record import REQUESTS, SOURCES, Record
from app.settings import Settings

# A user's share: so many times the requests that may run, and one part of the bytes.
_ROUNDS = 2
_USERS = 8
MOST_PARKED = 16_384
"""With so many requests parked, a worker reads no further."""
HELD_BYTES = 64 * 1024 * 1024
"""Of a partition's open records; further records wait in Kafka."""
WAITING_BYTES = 16 * 1024
"""What a request that waits for tools needs beside its record."""


@dataclasses.dataclass(frozen=True, slots=True)
class Share:
    """The most that one user's requests may occupy. More are read when half of the records have ended."""

    records: int
    size: int

    @classmethod
    def of(cls, settings: Settings) -> Share:
        return cls(_ROUNDS * settings.max_in_flight, HELD_BYTES // _USERS)


class OpenRecords:
    """`wanted` is set while a user with parked requests has room for more."""

    def __init__(self, share: Share) -> None:
        self.early: list[Record] = []
        self.wanted = asyncio.Event()
        self._share = share
        self._held: dict[str, dict[int, Record]] = {topic: {} for topic in SOURCES}
        self._parked: dict[bytes, deque[Record]] = {}
        self._parked_count = 0
        self._bytes = dict.fromkeys(SOURCES, 0)
        self._users: Counter[bytes] = Counter()
        self._user_bytes: Counter[bytes] = Counter()
        self._lent: dict[int, bytes | None] = {}
        self._lent_users: Counter[bytes] = Counter()

    def count(self, topic: str) -> int:
        """All open records of the topic."""
        return self._in_memory(topic) + (self._parked_count if topic == REQUESTS else 0)

    def active(self, topic: str) -> int:
        """Those in memory that do not wait for tools."""
        return self._in_memory(topic) - (len(self._lent) if topic == REQUESTS else 0)

    @property
    def parked(self) -> int:
        return self._parked_count

    def size(self, topic: str) -> int:
        """Upper bound of the memory of open records, in bytes."""
        return self._bytes[topic] + (len(self._lent) * WAITING_BYTES if topic == REQUESTS else 0)

    @property
    def oldest_request(self) -> int | None:
        """Timestamp of the oldest open request, Unix milliseconds."""
        early = (record for record in self.early if record.topic == REQUESTS)
        parked = (records[0] for records in self._parked.values())
        return min((one.timestamp for one in (*self._held[REQUESTS].values(), *early, *parked)), default=None)

    def add_early(self, record: Record) -> None:
        """It has arrived before the partition is owned."""
        self.early.append(record)
        self._bytes[record.topic] += record.cost

    def hold(self, record: Record) -> None:
        self._held[record.topic][record.offset] = record
        self._bytes[record.topic] += record.cost
        if record.topic == REQUESTS and record.key is not None:
            self._users[record.key] += 1
            self._user_bytes[record.key] += record.cost

    def holds(self, record: Record) -> bool:
        return record.offset in self._held[record.topic]

    def remove(self, record: Record) -> None:
        held = self._held[record.topic].pop(record.offset, None)
        if held is None:
            return
        self._bytes[record.topic] -= held.cost
        if record.topic == REQUESTS and held.key is not None:
            self._users[held.key] -= 1
            self._user_bytes[held.key] -= held.cost
            if not self._users[held.key]:
                del self._users[held.key], self._user_bytes[held.key]
            self._want(held.key)

    def exceeds(self, record: Record) -> bool:
        """Whether the request is beyond its user's share, or behind one that is parked."""
        user = record.key
        if record.topic != REQUESTS or user is None:
            return False
        return user in self._parked or not self._has_room(user)

    def park(self, record: Record) -> None:
        assert record.key is not None
        self._parked.setdefault(record.key, deque()).append(dataclasses.replace(record, value=None, headers=()))
        self._parked_count += 1
        self._want(record.key)

    def due(self) -> dict[bytes, int]:
        """The users with parked requests who have room for more, and the offset of the first of these."""
        users = (user for user in self._parked if self._has_much_room(user))
        return {user: self._parked[user][0].offset for user in users}

    def unpark(self, user: bytes) -> Record:
        """The user's next parked record, without value and headers; it is parked no longer."""
        record = self._parked[user].popleft()
        self._parked_count -= 1
        if not self._parked[user]:
            del self._parked[user]
        return record

    def next_parked(self, user: bytes) -> int | None:
        """The offset of the user's next parked request, if there is one and the user has room for it."""
        parked = self._parked.get(user)
        return parked[0].offset if parked and self._has_room(user) else None

    def lend(self, record: Record) -> None:
        """The request waits for tools."""
        self._lent[record.offset] = record.key
        if record.key is not None:
            self._lent_users[record.key] += 1
            self._want(record.key)

    def reclaim(self, record: Record) -> None:
        if record.offset in self._lent:
            del self._lent[record.offset]
            if record.key is not None:
                self._lent_users[record.key] -= 1
                if not self._lent_users[record.key]:
                    del self._lent_users[record.key]

    def lent_by(self, user: bytes | None) -> int:
        """How many requests of the user wait for tools."""
        return 0 if user is None else self._lent_users[user]

    def all(self) -> list[tuple[Record, bool]]:
        """All open records in the order of their offsets, and whether they are parked."""
        held = [(record, False) for of_topic in self._held.values() for record in of_topic.values()]
        parked = [(record, True) for records in self._parked.values() for record in records]
        early = [(record, False) for record in self.early]
        return sorted([*held, *early, *parked], key=lambda one: one[0].offset)

    def _in_memory(self, topic: str) -> int:
        return len(self._held[topic]) + sum(record.topic == topic for record in self.early)

    def _active(self, user: bytes) -> int:
        return self._users[user] - self._lent_users[user]

    def _has_room(self, user: bytes) -> bool:
        return self._active(user) < self._share.records and self._user_bytes[user] < self._share.size

    def _has_much_room(self, user: bytes) -> bool:
        return self._active(user) <= self._share.records // 2 and self._user_bytes[user] < self._share.size

    def _want(self, user: bytes) -> None:
        if user in self._parked and self._has_much_room(user):
            self.wanted.set()
