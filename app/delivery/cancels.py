"""Cancels that arrived before their request: topics have no common order, so the request may still be on its way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from app.delivery.resume.recovery import RequestKey

REMEMBERED_S = 300.0
MOST = 4096
MOST_OF_USER = 64


@dataclass(frozen=True, slots=True)
class _Remembered:
    commit: Callable[[], None]
    expiry: asyncio.TimerHandle


class Cancels:
    """Remembers each cancel for five minutes; `commit` is called when it is used or dropped.

    The cancel's record stays uncommitted until then, so it is read again after a restart. The number is bounded: beyond
    `MOST_OF_USER` of one user and `MOST` in all, the oldest are dropped early. Most likely their requests never come.
    """

    def __init__(self) -> None:
        self._remembered: dict[RequestKey, _Remembered] = {}
        self._of_user: Counter[str] = Counter()

    def remember(self, key: RequestKey, commit: Callable[[], None], for_s: float = REMEMBERED_S) -> None:
        self._forget(key)
        expiry = asyncio.get_running_loop().call_later(max(0.0, for_s), self._forget, key)
        self._remembered[key] = _Remembered(commit, expiry)
        self._of_user[key[0]] += 1
        if self._of_user[key[0]] > MOST_OF_USER:
            self._forget(next(one for one in self._remembered if one[0] == key[0]))
        elif len(self._remembered) > MOST:
            self._forget(next(iter(self._remembered)))

    def pop(self, key: RequestKey) -> Callable[[], None] | None:
        """The `commit` of the request's cancel, to be called once the request has ended; None if it was not
        cancelled.
        """
        remembered = self._remembered.pop(key, None)
        if remembered is None:
            return None
        remembered.expiry.cancel()
        self._of_user[key[0]] -= 1
        if not self._of_user[key[0]]:
            del self._of_user[key[0]]
        return remembered.commit

    def _forget(self, key: RequestKey) -> None:
        if commit := self.pop(key):
            commit()
