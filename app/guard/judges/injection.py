"""The category `injection`: texts that tell the model to drop its instructions.

A text that matches a pattern scores 1. Otherwise, if the worker has an embedder, its score is the highest cosine
between one of its passages and the known attacks in attacks.txt, so an attack in other words is found, too. A passage
that is nearer to a sentence of harmless.txt scores 0.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Protocol

from app.guard.judges.injection_patterns import PATTERNS
from app.guard.judges.judge import JudgeError
from app.guard.judges.passages import passages_of
from app.policy.guard_rules import INJECTION
from models.embedder import EmbedderError

if TYPE_CHECKING:
    from models.embedder.encoder import Vectors

_MOST_PASSAGES = 128
"""Of one text; what follows is only searched for patterns."""
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff"))


class Embeds(Protocol):
    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors: ...


class InjectionJudge:
    threshold = 0.5

    def __init__(self, embedder: Embeds | None) -> None:
        self._embedder = embedder
        self._known: Vectors | None = None  # the attacks, then the harmless sentences

    async def scores(self, texts: Sequence[str]) -> list[Mapping[str, float]]:
        return [{INJECTION: await self._score(text)} for text in texts]

    async def _score(self, original: str) -> float:
        text = plain(original)
        if await asyncio.to_thread(_has_pattern, text):  # some 20 ms for the longest prompts
            return 1.0
        passages = list(passages_of(text))[:_MOST_PASSAGES]
        if self._embedder is None or not passages:
            return 0.0
        try:
            if self._known is None:
                self._known = await self._embedder.embed([*known("attacks.txt"), *known("harmless.txt")], query=True)
            found = await self._embedder.embed(passages, query=True)
        except EmbedderError as error:
            raise JudgeError(f"{INJECTION}: {error}") from None
        nearness = found @ self._known.T
        attacks = len(known("attacks.txt"))
        attack, harmless = nearness[:, :attacks].max(axis=1), nearness[:, attacks:].max(axis=1)
        return min(1.0, max(0.0, *(attack * (attack > harmless)).tolist()))


def _has_pattern(text: str) -> bool:
    line = " ".join(text.split())
    return any(pattern.search(line) for pattern in PATTERNS)


def plain(text: str) -> str:
    """The text without what hides an attack: case, accents, odd forms of letters, invisible characters."""
    letters = unicodedata.normalize("NFKD", text.translate(_INVISIBLE))
    return "".join(one for one in letters if not unicodedata.combining(one)).casefold()


@cache
def known(name: str) -> tuple[str, ...]:
    lines = (files("app.guard.judges") / name).read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))
