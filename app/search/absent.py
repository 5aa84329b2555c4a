"""What the agents need of a history, and the one that keeps none.

With `PARLEY_EMBEDDER=none`, turns are told to `turns` and nobody indexes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from app.search.figures import Figures
from app.wire.turn import Turn


class TakesTurns(Protocol):
    """Never waits; `done` is called once the turn is indexed or rejected, or the user's rows are gone."""

    def submit(self, turn: Turn, done: Callable[[], None], partition: int = 0) -> None: ...

    def erase(self, user_id: str, until_ms: int, done: Callable[[], None], partition: int = 0) -> None: ...

    def revoke(self, partitions: Collection[int]) -> None:
        """Forget what waits of these partitions."""


class NoHistory:
    """Takes the place of `HistoryWriter`; everything is done at once."""

    def submit(self, turn: Turn, done: Callable[[], None], partition: int = 0) -> None:  # noqa: ARG002
        done()

    def erase(self, user_id: str, until_ms: int, done: Callable[[], None], partition: int = 0) -> None:  # noqa: ARG002
        done()

    def revoke(self, partitions: Collection[int]) -> None:  # noqa: ARG002
        return None

    @property
    def backlog(self) -> int:
        return 0

    def figures(self) -> Figures:
        return Figures()

    def start(self) -> None:
        return None

    async def stop(self, grace_s: float = 0.0) -> None:  # noqa: ARG002
        return None
