"""The clock of a batcher. A running asyncio loop implements it; tests use their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """The part of `asyncio.AbstractEventLoop` that a batcher uses."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], None], /) -> Timer: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer: ...
