"""The category `injection`: texts that tell the model to drop its instructions.

A text that matches a pattern scores 1. Otherwise, if the worker has an embedder, its score is the highest cosine
between one of its passages and the known attacks in attacks.txt, so an attack in other words is detected, too. A
passage that is nearer to a sentence of harmless.txt scores 0.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING

from app.features.guard.judges.injection_patterns import PATTERNS
from app.features.guard.judges.judge import JudgeError, Turn
from app.features.guard.judges.passages import passages_of
from app.policy.guard_rules import INJECTION
from models.embedder import EmbedderError
from models.embedder.embedder import Embeds

if TYPE_CHECKING:
    from models.embedder.encoder import Vectors

_MOST_PASSAGES = 128
"""Of one text; what follows is only searched for patterns."""
_WINDOW = 32768
"""Characters that are searched for patterns at once: meanwhile no other thread runs."""
_OVERLAP = 1024
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))


class InjectionJudge:
    """It needs the worker's embedder, which no judge behind the door has."""

    name = INJECTION
    threshold = 0.5
    width = 1

    def __init__(self, embedder: Embeds | None) -> None:
        self._embedder = embedder
        self._known: Vectors | None = None  # the attacks, then the harmless sentences

    async def scores(self, texts: Sequence[str], turn: Turn) -> list[Mapping[str, float]]:
        return [{INJECTION: await self._score(text, turn)} for text in texts]

    async def close(self) -> None:
        """The embedder is the worker's."""

    async def _score(self, original: str, turn: Turn) -> float:
        async with turn():
            has_pattern, passages = await asyncio.to_thread(_read, original)  # some 20 ms for the longest prompts
        if has_pattern:
            return 1.0
        if self._embedder is None or not passages:
            return 0.0
        try:
            async with turn():
                if self._known is None:
                    examples = [*known("attacks.txt"), *known("harmless.txt")]
                    self._known = await self._embedder.embed(examples, query=True)
                vectors = await self._embedder.embed(passages, query=True)
        except EmbedderError as error:
            raise JudgeError(f"{INJECTION}: {error}") from None
        nearness = vectors @ self._known.T
        attacks = len(known("attacks.txt"))
        attack, harmless = nearness[:, :attacks].max(axis=1), nearness[:, attacks:].max(axis=1)
        return min(1.0, max(0.0, *(attack * (attack > harmless)).tolist()))


def _read(original: str) -> tuple[bool, list[str]]:
    """Whether a pattern is in the text, and its first passages."""
    windows = (original[at : at + _WINDOW + _OVERLAP] for at in range(0, len(original), _WINDOW))
    has_pattern = any(_has_pattern(" ".join(plain(window).split())) for window in windows)
    return has_pattern, list(islice(passages_of(plain(original[:_WINDOW])), _MOST_PASSAGES))


def _has_pattern(line: str) -> bool:
    return any(pattern.search(line) for pattern in PATTERNS)


def plain(text: str) -> str:
    """The text without what hides an attack: case, accents, odd forms of letters, invisible characters."""
    letters = unicodedata.normalize("NFKD", text.translate(_INVISIBLE))
    return "".join(one for one in letters if not unicodedata.combining(one)).casefold()


@cache
def known(name: str) -> tuple[str, ...]:
    lines = (files("app.features.guard.judges") / name).read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))
