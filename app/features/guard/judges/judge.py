"""What all judges have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from parley_client.plugins import NoVerdict as JudgeError

__all__ = ["Judge", "JudgeError", "Turn"]

Turn = Callable[[], AbstractAsyncContextManager[None]]
"""Waits for the asker's turn. A judge does everything that takes time in turns of a fraction of a second."""


class Judge(Protocol):
    """A text belongs to a category if its score is at least the policy's threshold, by default the judge's own.
    `width` judgements may be under way at once.
    """

    @property
    def name(self) -> str: ...

    @property
    def threshold(self) -> float: ...

    @property
    def width(self) -> int: ...

    async def scores(self, texts: Sequence[str], turn: Turn) -> list[Mapping[str, float]]:
        """For each text, the score of each category, 0 to 1; raises `JudgeError`."""

    async def close(self) -> None: ...
