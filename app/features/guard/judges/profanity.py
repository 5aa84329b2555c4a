"""The category `profanity`: alt-profanity-check, a linear model over the words of English texts.

A text scores as the worst of its passages. The model knows no context: "how do I kill a zombie child process?" scores
0.52, "what a bloody mess" 0.86, insults above 0.95.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from parley_client.plugins import Judge, NoVerdict, turn

from app.features.guard.judges.passages import passages_of
from app.policy.guard_rules import PROFANITY

T = TypeVar("T")

_BATCH = 64
"""Passages that are judged in one turn."""


class ProfanityJudge(Judge):
    """Raises `NoVerdict` if the package is missing."""

    categories = (PROFANITY,)
    threshold = 0.9
    width = 1
    blocks = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        del settings
        try:
            import profanity_check  # type: ignore[import-untyped]
        except ImportError as error:
            raise NoVerdict(
                f"{PROFANITY} needs the package {error.name}: install Parley with its extra `guard`"
            ) from None
        self._predict = profanity_check.predict_prob
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="profanity")

    async def scores(self, texts: Sequence[str]) -> list[Mapping[str, float]]:
        async with turn():
            passages = await self._in_thread(partial(_passages, texts))
        worst = [0.0] * len(texts)
        for start in range(0, len(passages), _BATCH):
            batch = passages[start : start + _BATCH]
            async with turn():
                scores = await self._in_thread(partial(self._scores, [passage for _at, passage in batch]))
            for (at, _passage), score in zip(batch, scores, strict=True):
                worst[at] = max(worst[at], score)
        return [{PROFANITY: score} for score in worst]

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _scores(self, passages: Sequence[str]) -> list[float]:
        return [*map(float, self._predict(passages))]


def _passages(texts: Sequence[str]) -> list[tuple[int, str]]:
    """All passages, each with the number of its text."""
    return [(at, one) for at, text in enumerate(texts) for one in passages_of(text)]
