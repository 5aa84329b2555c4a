"""Verdicts about a user's last texts.

Each user has a memory of its own: whether a text is remembered shows in the time of the first token, and must
reveal nothing of others. What an erasure drops does not come back: a search that is under way remembers nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sized
from contextlib import suppress
from typing import Generic, TypeVar

from cachetools import LRUCache

_USERS = 256
_SIZE = 4096
"""Of one user: texts, and what their verdicts contain."""

Verdict = TypeVar("Verdict", bound=Sized)


class Memory(Generic[Verdict]):
    """Of one user."""

    def __init__(self) -> None:
        self._verdicts: LRUCache[bytes, Verdict] = LRUCache(_SIZE, getsizeof=lambda verdict: 1 + len(verdict))

    def get(self, text: str) -> Verdict | None:
        return self._verdicts.get(_digest_of(text))

    def put(self, text: str, verdict: Verdict) -> None:
        with suppress(ValueError):  # too large to be remembered
            self._verdicts[_digest_of(text)] = verdict


class Remembered(Generic[Verdict]):
    def __init__(self) -> None:
        self._users: LRUCache[str, Memory[Verdict]] = LRUCache(_USERS)

    def of(self, user: str) -> Memory[Verdict]:
        memory = self._users.get(user)
        if memory is None:
            memory = self._users[user] = Memory()
        return memory

    def forget(self, user: str) -> None:
        self._users.pop(user, None)


def _digest_of(text: str) -> bytes:
    """16 bytes that stand for a text."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
