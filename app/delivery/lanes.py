"""Run requests in order within a conversation, and concurrently across conversations.

Each conversation is a lane, in which one request runs at a time. A request behind another of its lane occupies no slot
of the partition, so one busy conversation takes one slot and no more. Free slots go to the fronts of the lanes by
priority. A later request overtakes an earlier one of lower priority only if it came at most `OVERTAKE` ranks later per
priority level, so every request runs eventually.

Users share the slots: a user's new request is put `SPREAD` ranks back for each request that the user already has here.
And no user, and no tenant, holds all of them (fair_slots.py). So a user with a thousand conversations delays
another user's first request neither by the thousand nor by those that run.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from models.interface.fair_slots import FairSlots, Payer, Payers

OVERTAKE = 256
SPREAD = 8

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True, order=True)
class _Entry(Generic[T]):
    rank: tuple[int, int]
    item: T = field(compare=False)
    work: Work = field(compare=False)
    lane: Hashable = field(compare=False)
    payers: Payers = field(compare=False)
    has_begun: bool = field(compare=False, default=False)
    has_slot: bool = field(compare=False, default=False)
    hurries: bool = field(compare=False, default=False)
    returning: asyncio.Future[None] | None = field(compare=False, default=None)


class Lanes(Generic[T]):
    """Runs the work of each added item, at most `limit` at once beside those that hurry; exceptions of it go to
    `on_error`.
    """

    def __init__(self, limit: int, on_error: Callable[[BaseException], None]) -> None:
        self._slots = FairSlots(limit)
        self._on_error = on_error
        self._arrivals = itertools.count()
        self._lanes: dict[Hashable, deque[_Entry[T]]] = {}
        self._ready: list[_Entry[T]] = []
        self._refused: dict[Payer, list[_Entry[T]]] = {}
        self._running: dict[asyncio.Task[None], _Entry[T]] = {}
        self._waiting = 0
        self._users: Counter[Payer] = Counter()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def working(self) -> frozenset[asyncio.Task[None]]:
        """The tasks of the items that run and have not lent out their slot."""
        return frozenset(task for task, entry in self._running.items() if entry.has_slot)

    def add(self, lane: Hashable, item: T, work: Work, priority: int = 0, payers: Payers = ()) -> None:
        """Run `work` for the item when its turn comes. `payers` are its tenant, if it has one, and its user; without
        them, the lane counts as a user of its own.
        """
        payers = payers or (lane,)
        arrival = next(self._arrivals)
        rank = arrival + priority * OVERTAKE + self._users[payers[-1]] * SPREAD
        entry = _Entry((rank, arrival), item, work, lane, payers)
        self._users[payers[-1]] += 1
        self._waiting += 1
        if lane in self._lanes:
            self._lanes[lane].append(entry)
            return
        self._lanes[lane] = deque([entry])
        heapq.heappush(self._ready, entry)
        self._fill()

    @asynccontextmanager
    async def without_slot(self) -> AsyncIterator[None]:
        """Lend out the slot of a running item while it waits for something else; called by its task.

        At the end the item waits for its turn again, before later ones: thousands may have waited for the same thing.
        An item that hurries ends without a slot, and so does one that fails meanwhile: it does not go on. The work of
        a withdrawn item has none to lend.
        """
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        if (entry := self._running.get(task)) is None:
            yield
            return
        self._release(entry)
        self._fill()
        yield
        if not entry.hurries:
            await self._return(entry)

    @property
    def are_short(self) -> bool:
        """Whether an item waits for a slot, and for nothing else."""
        return bool(self._ready or self._refused)

    def has_queue(self, lane: Hashable) -> bool:
        """Whether an item waits for another one of its lane."""
        return len(self._lanes.get(lane, ())) > 1

    def items(self, lane: Hashable) -> list[T]:
        return [entry.item for entry in self._lanes.get(lane, ())]

    def front(self, lane: Hashable) -> T | None:
        """The item of the lane that runs or runs next."""
        entries = self._lanes.get(lane)
        return entries[0].item if entries else None

    def withdraw(self, lane: Hashable, item: T) -> Work | None:
        """Remove an item that has not begun, and return its work; None if it has."""
        entry = self._entry_of(lane, item)
        if entry is None or entry.has_begun:
            return None
        entries = self._lanes[lane]
        front = entry is entries[0]
        entries.remove(entry)
        self._waiting -= 1
        self._leave(entry)
        if front:
            self._remove_ready(entry)
            self._next_of(lane)
        return entry.work

    def hurry(self, lane: Hashable, item: T) -> None:
        """Let the item run without a slot once the items before it in its lane have ended: all it has to do is end."""
        entry = self._entry_of(lane, item)
        if entry is None:
            return
        entry.hurries = True
        if entry.returning is not None:
            _wake(entry.returning)
        elif not entry.has_begun and entry is self._lanes[lane][0]:
            self._remove_ready(entry)
            self._begin(entry)

    async def cancel(self) -> None:
        """Stop everything at once; no waiting item begins."""
        self._lanes.clear()
        self._ready.clear()
        self._refused.clear()
        self._users.clear()
        self._waiting = 0
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _entry_of(self, lane: Hashable, item: T) -> _Entry[T] | None:
        return next((entry for entry in self._lanes.get(lane, ()) if entry.item is item), None)

    def _fill(self) -> None:
        """Let the first items begin whose payers may hold a slot; the others wait apart, by the payer who may not."""
        self._ask_again()
        while self._ready and self._slots.free > 0:
            entry = heapq.heappop(self._ready)
            if (payer := self._slots.refused(entry.payers)) is None:
                self._give_slot(entry)
            else:
                heapq.heappush(self._refused.setdefault(payer, []), entry)

    def _ask_again(self) -> None:
        """Of each payer who was refused and may hold a slot again, one item is ready: one slot at a time gets free."""
        for payer in list(self._refused):
            entries = self._refused[payer]
            while entries and (other := self._slots.refused(entries[0].payers)) != payer:
                entry = heapq.heappop(entries)
                heapq.heappush(self._ready if other is None else self._refused.setdefault(other, []), entry)
                if other is None:
                    break
            if not entries:
                del self._refused[payer]

    def _remove_ready(self, entry: _Entry[T]) -> None:
        if entry in self._ready:
            self._ready.remove(entry)
            heapq.heapify(self._ready)
            return
        for payer, entries in self._refused.items():
            if entry in entries:
                entries.remove(entry)
                heapq.heapify(entries)
                if not entries:
                    del self._refused[payer]
                return

    def _give_slot(self, entry: _Entry[T]) -> None:
        entry.has_slot = True
        self._slots.hold(entry.payers)
        if entry.returning is None:
            self._begin(entry)
        else:
            _wake(entry.returning)

    def _release(self, entry: _Entry[T]) -> None:
        if entry.has_slot:
            entry.has_slot = False
            self._slots.release(entry.payers)

    async def _return(self, entry: _Entry[T]) -> None:
        entry.returning = asyncio.get_running_loop().create_future()
        heapq.heappush(self._ready, entry)
        self._fill()
        try:
            await entry.returning
        finally:
            entry.returning = None
            if not entry.has_slot:
                self._remove_ready(entry)

    def _begin(self, entry: _Entry[T]) -> None:
        self._waiting -= 1
        entry.has_begun = True
        task = asyncio.create_task(entry.work())
        self._running[task] = entry
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        entry = self._running.pop(task)
        self._release(entry)
        self._leave(entry)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
        entries = self._lanes.get(entry.lane)
        if entries and entries[0] is entry:
            entries.popleft()
            self._next_of(entry.lane)
        self._fill()

    def _leave(self, entry: _Entry[T]) -> None:
        user = entry.payers[-1]
        self._users[user] -= 1
        if self._users[user] <= 0:
            del self._users[user]

    def _next_of(self, lane: Hashable) -> None:
        entries = self._lanes[lane]
        if entries and entries[0].hurries:
            self._begin(entries[0])
        elif entries:
            heapq.heappush(self._ready, entries[0])
            self._fill()
        else:
            del self._lanes[lane]


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
