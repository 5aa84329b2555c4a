"""Judges that fail at times, and do not flag the same twice, so that a decision which is made again shows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from app.features.guard.fair_order import Asker
from app.features.guard.judges.judge import JudgeError
from tests.faults.moderation_verdict import BANNED


class FickleJudges:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def categories_of(self, texts: Sequence[str], categories: frozenset[str], _asker: Asker) -> frozenset[str]:
        await asyncio.sleep(0.05 * self._chance.random())
        if self._chance.random() < 0.05:
            raise JudgeError("the judges are away")
        found = {"risky"} if self._chance.random() < 0.3 else set()
        if any(BANNED.search(text) for text in texts):
            found.add("banned")
        return categories & found

    async def warm(self) -> None:
        """They load nothing."""

    async def close(self) -> None:
        return None

    def forget(self, user: str) -> None:
        return None
