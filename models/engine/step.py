"""A step that has been started: what it computes and draws. The result may still be on its way from the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.engine.prompt_scores import PromptScores
from models.engine.sequence import ScheduledChunk
from models.sampler import Drawn, Token


@dataclass(frozen=True, slots=True)
class Step:
    """`draws`: which slices draw a token, and after how many tokens of their draft; in the order of `drawn`."""

    slices: Sequence[ScheduledChunk]
    draws: Sequence[tuple[ScheduledChunk, int]]
    drawn: Drawn | None
    began: float
    scores: PromptScores | None = None

    def read(self) -> list[tuple[ScheduledChunk, list[Token]]]:
        """For every slice, its next token and the one after each token of its draft; waits for them."""
        if self.drawn is None:
            return []
        placed = list(zip(self.draws, self.drawn.read(), strict=True))
        if any(offset for _, offset in self.draws):
            placed.sort(key=lambda one: one[0][1])
        found: dict[int, tuple[ScheduledChunk, list[Token]]] = {}
        for (part, _), token in placed:
            found.setdefault(id(part), (part, []))[1].append(token)
        return list(found.values())
