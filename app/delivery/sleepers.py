"""The answers of one ownership that sleep or have slept (tables/asleep.py), as they are decided.

A change is decided in one step of the event loop, in which its commit is put, and counts from then on: what reads the
rows between a decision and its commit would decide otherwise. Decisions are kept here until they are in the store.

How many of a user sleep is counted once, when it is first asked, and kept with each decision: a sleep costs the same
whether ten sleep or ten thousand.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Iterator

import msgspec

from app.delivery.accepted import Former, RequestKey
from app.delivery.record import Record
from app.reader.rule import Answer
from tables.asleep import Head, Part, Sleep, Sleeper, WaitKind, head_in, heads, no_rows, row_of, sleeper_in
from tables.records import RowChange
from tables.store import PartitionStore


class Sleepers:
    """`some` is set while there may be any: without them, nothing is asked of the table."""

    def __init__(self, store: PartitionStore) -> None:
        self.some = asyncio.Event()
        self._store = store
        self._decided: dict[RequestKey, Sleeper | None] = {}
        self._asleep: dict[str, int] = {}

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

    def put(self, key: RequestKey, sleeper: Sleeper) -> tuple[RowChange, ...]:
        """Decide that the answer sleeps."""
        self._decide(key, self.head(key), sleeper)
        self.some.set()
        return sleeper.rows(*key)

    def decide(self, key: RequestKey, head: Head) -> RowChange:
        sleeper = self.get(key)
        assert sleeper is not None
        self._decide(key, sleeper.head, msgspec.structs.replace(sleeper, head=head))
        return row_of(Part.WAIT, head, *key)

    def end(self, key: RequestKey) -> tuple[RowChange, ...]:
        """Decide that the answer has ended."""
        self._decide(key, self.head(key), None)
        return no_rows(*key)

    def asleep_of(self, user_id: str) -> int:
        """How many answers of the user sleep."""
        if (known := self._asleep.get(user_id)) is not None:
            return known
        keys = {key for key, _ in heads(self._store, user_id)} if self.some.is_set() else set()
        keys.update(key for key in self._decided if key[0] == user_id)
        count = sum(_sleeps(self.head(key)) for key in keys)
        if count:
            self._asleep[user_id] = count
        return count

    def _decide(self, key: RequestKey, before: Head | None, sleeper: Sleeper | None) -> None:
        self._decided[key] = sleeper
        if (count := self._asleep.get(key[0])) is not None:
            count += _sleeps(None if sleeper is None else sleeper.head) - _sleeps(before)
            self._asleep[key[0]] = count
            if not count:
                del self._asleep[key[0]]  # it is counted again for less than one is kept

    @property
    def under_way(self) -> dict[RequestKey, Sleeper | None]:
        """What is decided and not committed."""
        return self._decided

    def settle(self, decided: Iterable[tuple[RequestKey, Sleeper | None]]) -> None:
        """These decisions are committed; later ones may have followed."""
        for key, sleeper in decided:
            if key in self._decided and self._decided[key] is sleeper:
                del self._decided[key]

    def all(self, *user_id: str) -> Iterator[tuple[RequestKey, Head]]:
        """Those that have committed rows, of all users or of one, each as it is decided. One whose first sleep is not
        committed yet is in `under_way` alone.
        """
        for key, raw in heads(self._store, *user_id):
            head = self.head(key) if key in self._decided else msgspec.json.decode(raw, type=Head)
            if head is not None:
                yield key, head

    def answer_of(self, key: RequestKey, partition: int) -> Answer | None:
        """What readers have of an answer, as far as its rows know it."""
        sleeper = self.get(key) if self.some.is_set() else None
        return None if sleeper is None or sleeper.head.kind is WaitKind.TIMER else answer_of(key, sleeper, partition)


def _sleeps(head: Head | None) -> bool:
    return head is not None and head.state is Sleep.ASLEEP


def answer_of(key: RequestKey, sleeper: Sleeper, partition: int) -> Answer:
    kept, conversation_id = sleeper.answer, sleeper.head.conversation_id
    return Answer(*key, conversation_id, partition=partition, position=kept.position, segments=[*kept.segments])


def former_of(key: RequestKey, sleeper: Sleeper, former: Former, partition: int) -> Former:
    """What its rows have, and what the log has behind them."""
    answer = former.answer or answer_of(key, sleeper, partition)
    return dataclasses.replace(former, answer=answer, plan=former.plan if former.plan.is_made else sleeper.answer.plan)


def record_of(sleeper: Sleeper, record: Record) -> Record:
    """The record of the request as it came first, in the place of one that wakes it. One that has waited for its time
    is as one that is sent when it wakes.
    """
    kept, head = sleeper.answer, sleeper.head
    timestamp = head.woken_at if head.kind is WaitKind.TIMER else kept.timestamp
    return dataclasses.replace(record, value=sleeper.value, headers=kept.headers, timestamp=timestamp)
