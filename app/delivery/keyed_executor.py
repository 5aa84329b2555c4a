"""Run requests in order within a conversation, and concurrently across conversations.

Each conversation is a lane, in which one request runs at a time. A request behind another of its lane occupies no slot
of the partition, so one busy conversation takes one slot and no more. Free slots go to the fronts of the lanes by
priority. A later request overtakes an earlier one of lower priority only if it came at most `OVERTAKE` places later per
priority level, so every request runs eventually.

Users share the slots: a user's new request is put `SPREAD` places back for each request that the user already has here.
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


@dataclass(slots=True, order=True)
class _Place(Generic[T]):
    turn: tuple[int, int]
    item: T = field(compare=False)
    lane: Hashable = field(compare=False)
    user: Hashable = field(compare=False)
    has_begun: bool = field(compare=False, default=False)
    hurries: bool = field(compare=False, default=False)


class KeyedExecutor(Generic[T]):
    """Runs `answer(item)` for each added item, at most `limit` at once; exceptions of `answer` go to `on_error`."""

    def __init__(
        self, limit: int, answer: Callable[[T], Awaitable[None]], on_error: Callable[[BaseException], None]
    ) -> None:
        self._limit = limit
        self._answer = answer
        self._on_error = on_error
        self._arrivals = itertools.count()
        self._lanes: dict[Hashable, deque[_Place[T]]] = {}
        self._ready: list[_Place[T]] = []
        self._running: dict[asyncio.Task[None], _Place[T]] = {}
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

    def add(self, lane: Hashable, item: T, priority: int = 0, user: Hashable | None = None) -> None:
        """Add an item. With `user` None, the lane counts as a user of its own."""
        user = lane if user is None else user
        arrival = next(self._arrivals)
        turn = arrival + priority * OVERTAKE + self._users[user] * SPREAD
        place = _Place((turn, arrival), item, lane, user)
        self._users[user] += 1
        self._waiting += 1
        if lane in self._lanes:
            self._lanes[lane].append(place)
            return
        self._lanes[lane] = deque([place])
        heapq.heappush(self._ready, place)
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

    def has_queue(self, lane: Hashable) -> bool:
        """Whether an item waits for another one of its lane."""
        return len(self._lanes.get(lane, ())) > 1

    def front(self, lane: Hashable) -> T | None:
        """The item of the lane that runs or runs next."""
        places = self._lanes.get(lane)
        return places[0].item if places else None

    def withdraw(self, lane: Hashable, item: T) -> bool:
        """Remove an item that has not begun; False if it has."""
        places = self._lanes.get(lane, deque())
        for place in places:
            if place.item is item and not place.has_begun:
                front = place is places[0]
                places.remove(place)
                self._waiting -= 1
                self._leave(place)
                if front:
                    self._ready.remove(place)
                    heapq.heapify(self._ready)
                    self._next_of(lane)
                return True
        return False

    def hurry(self, lane: Hashable, item: T) -> None:
        """Let the item run without a slot once the items before it in its lane have ended: all it has to do is end."""
        for place in self._lanes.get(lane, ()):
            if place.item is item and not place.has_begun:
                place.hurries = True
                if place in self._ready:
                    self._ready.remove(place)
                    heapq.heapify(self._ready)
                    self._lent.add(self._begin(place))
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

    def _begin(self, place: _Place[T]) -> asyncio.Task[None]:
        self._waiting -= 1
        place.has_begun = True
        task = asyncio.ensure_future(self._run(place))
        self._running[task] = place
        task.add_done_callback(self._ended)
        return task

    async def _run(self, place: _Place[T]) -> None:
        await self._answer(place.item)

    def _ended(self, task: asyncio.Task[None]) -> None:
        place = self._running.pop(task)
        self._lent.discard(task)
        self._leave(place)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
        places = self._lanes.get(place.lane)
        if places and places[0] is place:
            places.popleft()
            self._next_of(place.lane)
        self._fill()

    def _leave(self, place: _Place[T]) -> None:
        self._users[place.user] -= 1
        if self._users[place.user] <= 0:
            del self._users[place.user]

    def _next_of(self, lane: Hashable) -> None:
        places = self._lanes[lane]
        if places and places[0].hurries:
            self._lent.add(self._begin(places[0]))
        elif places:
            heapq.heappush(self._ready, places[0])
            self._fill()
        else:
            del self._lanes[lane]
