"""An analyzer that never finds the same twice, so that a decision which is made again shows."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence

from app.features.guard.analyzer import AnalyzerError
from app.features.guard.fair_order import Asker
from app.private.value import PrivateValue

_VALUE = re.compile(r"question [0-9]+")
MANY_VALUES = "many private values"
"""A text with these words has more private values than a record can hold."""
NO_VERDICT = "no verdict, ever"
"""The search in a text with these words always fails."""
_MANY = tuple(PrivateValue("PERSON", f"{number} {'x' * 1000}") for number in range(1100))


class FickleAnalyzer:
    """Finds each question with a chance of one half, after a moment, and fails at times."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def find(self, texts: Sequence[str], _asker: Asker) -> tuple[PrivateValue, ...]:
        await asyncio.sleep(0.05 * self._chance.random())
        if self._chance.random() < 0.05:
            raise AnalyzerError("the analyzer is away")
        if any(NO_VERDICT in text for text in texts):
            raise AnalyzerError("the analyzer cannot read this")
        if any(MANY_VALUES in text for text in texts):
            return _MANY
        found = dict.fromkeys(value for text in texts for value in _VALUE.findall(text))
        return tuple(PrivateValue("PERSON", value) for value in found if self._chance.random() < 0.5)

    def forget(self, user: str) -> None:
        return None
