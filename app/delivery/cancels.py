"""Cancels that came before their request: topics have no order among them, so the request may still be on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from app.delivery.said import RequestKey

REMEMBERED_S = 300.0


@dataclass(frozen=True, slots=True)
class _Remembered:
    settle: Callable[[], None]
    expiry: asyncio.TimerHandle


class Cancels:
    """Remembers each for five minutes; `settle` is called by whoever takes it, or once it is too old to matter.

    The record of a cancel stays open until then, so a restart within the five minutes reads it again.
    """

    def __init__(self) -> None:
        self._remembered: dict[RequestKey, _Remembered] = {}

    def remember(self, key: RequestKey, settle: Callable[[], None], for_s: float = REMEMBERED_S) -> None:
        self._forget(key)
        expiry = asyncio.get_running_loop().call_later(max(0.0, for_s), self._forget, key)
        self._remembered[key] = _Remembered(settle, expiry)

    def take(self, key: RequestKey) -> Callable[[], None] | None:
        """The `settle` of a request that was cancelled, to be called once the request has ended; None if it was not."""
        remembered = self._remembered.pop(key, None)
        if remembered is None:
            return None
        remembered.expiry.cancel()
        return remembered.settle

    def _forget(self, key: RequestKey) -> None:
        if settle := self.take(key):
            settle()
