"""What all judges have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class JudgeError(Exception):
    """There is no verdict about a text; the message is one line, and does not quote the text."""


class Judge(Protocol):
    """A text belongs to a category if its score is at least the policy's threshold, by default the judge's own."""

    @property
    def threshold(self) -> float: ...

    async def scores(self, texts: Sequence[str]) -> list[Mapping[str, float]]:
        """For each text, the score of each category, 0 to 1; raises `JudgeError`."""
