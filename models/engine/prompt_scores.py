"""The log probabilities of prompts' tokens: what the model expected in the place of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from torch import Tensor

from models.drawing.logprobs import logprobs_of
from models.engine.sequence import ScheduledChunk
from models.interface.generation import TokenLogprob


class NotFiniteError(ValueError):
    """The model computes no numbers."""

    def __init__(self) -> None:
        super().__init__("the model's logits are not finite")


class PromptScores:
    """Those of one step, possibly still on their way from the device."""

    def __init__(self, logits: Tensor, parts: Sequence[ScheduledChunk]) -> None:
        """`logits` [tokens, vocabulary] are those of the scored tokens of `parts`."""
        self._parts = parts
        self._tokens = [token for part in parts for token in _scored_tokens(part)]
        most = max(part.sequence.job.prompt_logprobs or 0 for part in parts)
        self._found = logprobs_of(logits, range(len(self._tokens)), self._tokens, most, ranked=True)

    def read(self) -> Iterator[tuple[ScheduledChunk, list[TokenLogprob]]]:
        """Raises `NotFiniteError`."""
        own = self._found.own.tolist()
        if not all(map(isfinite, own)):
            raise NotFiniteError
        rows = zip(self._tokens, own, self._found.pairs(), self._found.ranks.tolist(), strict=True)
        for part in self._parts:
            top = part.sequence.job.prompt_logprobs
            scored = [next(rows) for _ in range(part.scored)]
            yield part, [TokenLogprob(token, own, best[:top], rank) for token, own, best, rank in scored]


def _scored_tokens(part: ScheduledChunk) -> list[int]:
    return part.sequence.tokens[part.start + 1 : part.start + 1 + part.scored]
