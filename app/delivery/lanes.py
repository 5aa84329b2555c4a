"""Run requests in order within a conversation, and concurrently across conversations.

Each conversation is a lane, in which one request runs at a time. A request behind another of its lane occupies no slot
of the partition, so one busy conversation takes one slot and no more. Free slots go to the fronts of the lanes by
priority. A later request overtakes an earlier one of lower priority only if it came at most `OVERTAKE` ranks later per
priority level, so every request runs eventually.

Users share the slots: a user's new request is put `SPREAD` ranks back for each request that the user already has here.
A user with a thousand conversations therefore delays another user's first request by the running answers only, not by
the thousand.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

OVERTAKE = 256
SPREAD = 8

T = TypeVar("T")
Work = Callable[[], Awaitable[None]]


@dataclass(slots=True, order=True)
class _Entry(Generic[T]):
    rank: tuple[int, int]
    item: T = field(compare=False)
    work: Work = field(compare=False)
    lane: Hashable = field(compare=False)
    user: Hashable = field(compare=False)
    has_begun: bool = field(compare=False, default=False)
    hurries: bool = field(compare=False, default=False)


class Lanes(Generic[T]):
    """Runs the work of each added item, at most `limit` at once; exceptions of it go to `on_error`."""

    def __init__(self, limit: int, on_error: Callable[[BaseException], None]) -> None:
        self._limit = limit
        self._on_error = on_error
        self._arrivals = itertools.count()
        self._lanes: dict[Hashable, deque[_Entry[T]]] = {}
        self._ready: list[_Entry[T]] = []
        self._running: dict[asyncio.Task[None], _Entry[T]] = {}
        self._waiting = 0
        self._lent: set[asyncio.Task[None]] = set()
        self._users: Counter[Hashable] = Counter()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def working(self) -> frozenset[asyncio.Task[None]]:
        """The tasks of the items that run and have not lent out their slot."""
        return frozenset(self._running.keys() - self._lent)

    def add(self, lane: Hashable, item: T, work: Work, priority: int = 0, user: Hashable | None = None) -> None:
        """Run `work` for the item when its turn comes. With `user` None, the lane counts as a user of its own."""
        user = lane if user is None else user
        arrival = next(self._arrivals)
        rank = arrival + priority * OVERTAKE + self._users[user] * SPREAD
        entry = _Entry((rank, arrival), item, work, lane, user)
        self._users[user] += 1
        self._waiting += 1
        if lane in self._lanes:
            self._lanes[lane].append(entry)
            return
        self._lanes[lane] = deque([entry])
        heapq.heappush(self._ready, entry)
        self._fill()

    @contextmanager
    def without_slot(self) -> Iterator[None]:
        """Lend out the slot of a running item while it waits for something else; called by its task.

        The item takes it back without waiting, so a few more than `limit` items may run for a while.
        """
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._lent.add(task)
        self._fill()
        try:
            yield
        finally:
            self._lent.discard(task)

    @property
    def are_short(self) -> bool:
        """Whether an item waits for a slot, and for nothing else."""
        return bool(self._ready)

    def has_queue(self, lane: Hashable) -> bool:
        """Whether an item waits for another one of its lane."""
        return len(self._lanes.get(lane, ())) > 1

    def front(self, lane: Hashable) -> T | None:
        """The item of the lane that runs or runs next."""
        entries = self._lanes.get(lane)
        return entries[0].item if entries else None

    def withdraw(self, lane: Hashable, item: T) -> bool:
        """Remove an item that has not begun; False if it has."""
        entries = self._lanes.get(lane, deque())
        for entry in entries:
            if entry.item is item and not entry.has_begun:
                front = entry is entries[0]
                entries.remove(entry)
                self._waiting -= 1
                self._leave(entry)
                if front:
                    self._ready.remove(entry)
                    heapq.heapify(self._ready)
                    self._next_of(lane)
                return True
        return False

    def hurry(self, lane: Hashable, item: T) -> None:
        """Let the item run without a slot once the items before it in its lane have ended: all it has to do is end."""
        for entry in self._lanes.get(lane, ()):
            if entry.item is item and not entry.has_begun:
                entry.hurries = True
                if entry in self._ready:
                    self._ready.remove(entry)
                    heapq.heapify(self._ready)
                    self._lent.add(self._begin(entry))
                return

    async def cancel(self) -> None:
        """Stop everything at once; no waiting item begins."""
        self._lanes.clear()
        self._ready.clear()
        self._users.clear()
        self._waiting = 0
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _fill(self) -> None:
        while self._ready and len(self._running) - len(self._lent) < self._limit:
            self._begin(heapq.heappop(self._ready))

    def _begin(self, entry: _Entry[T]) -> asyncio.Task[None]:
        self._waiting -= 1
        entry.has_begun = True
        task = asyncio.ensure_future(_run(entry.work))
        self._running[task] = entry
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        entry = self._running.pop(task)
        self._lent.discard(task)
        self._leave(entry)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
        entries = self._lanes.get(entry.lane)
        if entries and entries[0] is entry:
            entries.popleft()
            self._next_of(entry.lane)
        self._fill()

    def _leave(self, entry: _Entry[T]) -> None:
        self._users[entry.user] -= 1
        if self._users[entry.user] <= 0:
            del self._users[entry.user]

    def _next_of(self, lane: Hashable) -> None:
        entries = self._lanes[lane]
        if entries and entries[0].hurries:
            self._lent.add(self._begin(entries[0]))
        elif entries:
            heapq.heappush(self._ready, entries[0])
            self._fill()
        else:
            del self._lanes[lane]


async def _run(work: Work) -> None:
    await work()
