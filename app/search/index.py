"""The index as the agents use it: turns go in, and no caller waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from app.wire.turn import Turn
from tables.erasures import Scope

Indexed = Callable[[str | None], object]
"""Called once per turn: with None when its rows are stored, or with the reason why they never can be."""
Hide = Callable[[int, Turn], Awaitable[Turn | None]]
"""A partition's turn without private values; None if the partition has left. Raises `HideError`."""


class HideError(Exception):
    """There is no verdict about a turn's private values; another try may have one. One line for people."""


@dataclass(slots=True)
class IndexStats:
    """Counters never decrease. `lag_s` is the age of the oldest waiting turn; `trouble` is empty if there is none."""

    rows: int = 0
    batches: int = 0
    rejected: int = 0
    erasures: int = 0
    retries: int = 0
    flushes: int = 0
    backlog: int = 0
    lag_s: float = 0.0
    trouble: str = ""


class Index(Protocol):
    """Accepts turns and erasures and never makes the caller wait."""

    def submit(self, turn: Turn, done: Indexed, partition: int = 0) -> None: ...

    def erase(self, scope: Scope, until_ms: int, ended_ms: int, done: Callable[[], object], partition: int = 0) -> None:
        """Delete the rows of requests up to `until_ms`; turns of that time had ended by `ended_ms`."""

    def expire(self, before_ms: int) -> None:
        """Delete all rows of turns that ended before that time."""

    def revoke(self, partitions: Collection[int]) -> None:
        """Drop what waits of these partitions; their next owner reads it again."""

    def start(self) -> None: ...

    async def stop(self, grace_s: float = ...) -> None: ...

    @property
    def backlog(self) -> int: ...

    def stats(self) -> IndexStats: ...


class NoIndex:
    """The index of `PARLEY_EMBEDDER=none`: turns stay on their topic, and whatever is asked for is done at once."""

    def submit(self, turn: Turn, done: Indexed, partition: int = 0) -> None:  # noqa: ARG002
        done(None)

    def erase(
        self,
        scope: Scope,  # noqa: ARG002
        until_ms: int,  # noqa: ARG002
        ended_ms: int,  # noqa: ARG002
        done: Callable[[], object],
        partition: int = 0,  # noqa: ARG002
    ) -> None:
        done()

    def expire(self, before_ms: int) -> None:  # noqa: ARG002
        return None

    def revoke(self, partitions: Collection[int]) -> None:  # noqa: ARG002
        return None

    def start(self) -> None:
        return None

    async def stop(self, grace_s: float = 0.0) -> None:  # noqa: ARG002
        return None

    @property
    def backlog(self) -> int:
        return 0

    def stats(self) -> IndexStats:
        return IndexStats()
