"""The category `profanity`: alt-profanity-check, a linear model over the words of English texts.

A text scores as the worst of its passages. The model knows no context: "how do I kill a zombie child process?" scores
0.52, "what a bloody mess" 0.86, insults above 0.95.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from app.guard.judges.judge import JudgeError
from app.guard.judges.passages import passages_of
from app.policy.guard_rules import PROFANITY


class ProfanityJudge:
    """Raises `JudgeError` if the package is missing."""

    threshold = 0.9

    def __init__(self) -> None:
        try:
            import profanity_check  # type: ignore[import-untyped]  # noqa: PLC0415 - takes seconds
        except ImportError as error:
            raise JudgeError(f"{PROFANITY} needs the package {error.name}: install parley[guard]") from None
        self._predict = profanity_check.predict_prob
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="profanity")

    async def scores(self, texts: Sequence[str]) -> list[Mapping[str, float]]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._scores, texts)

    def _scores(self, texts: Sequence[str]) -> list[Mapping[str, float]]:
        return [{PROFANITY: max(map(float, self._predict([*passages_of(text)] or [""])))} for text in texts]
