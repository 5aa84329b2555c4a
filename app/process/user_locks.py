"""A lock for each user, as long as a task holds it or waits for it."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class UserLocks:
    """A lock that no task refers to is removed, so the table does not grow with the number of users."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._locks)

    def of(self, user_id: str) -> asyncio.Lock:
        lock = self._locks.get(user_id)
        if lock is None:
            lock = self._locks[user_id] = asyncio.Lock()
        return lock
