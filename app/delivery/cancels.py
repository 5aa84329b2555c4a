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
    """Remembers each for five minutes; `settle` is called once it has been used or is too old to matter.

    The record of a cancel stays open until then, so a restart within the five minutes reads it again.
    """

    def __init__(self) -> None:
        self._remembered: dict[RequestKey, _Remembered] = {}

    def remember(self, key: RequestKey, settle: Callable[[], None], for_s: float = REMEMBERED_S) -> None:
        self.pop(key)
        expiry = asyncio.get_running_loop().call_later(max(0.0, for_s), self.pop, key)
        self._remembered[key] = _Remembered(settle, expiry)

    def pop(self, key: RequestKey) -> bool:
        """Whether the request was cancelled; it is forgotten with that."""
        remembered = self._remembered.pop(key, None)
        if remembered is None:
            return False
        remembered.expiry.cancel()
        remembered.settle()
        return True
