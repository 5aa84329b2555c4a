"""The log probabilities of prompts' tokens: what the model expected in the place of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from models.engine.sequence import ScheduledChunk
from models.generation import TokenLogprob


class NotFiniteError(ValueError):
    """The model computes no numbers."""

    def __init__(self) -> None:
        super().__init__("the model's logits are not finite")


class PromptScores:
    """Those of one step, possibly still on their way from the device."""

    def __init__(self, logits: Tensor, parts: Sequence[ScheduledChunk]) -> None:
        """`logits` [tokens, vocabulary] are those of the scored tokens of `parts`."""
        self._parts = parts
        tokens = [token for part in parts for token in _scored_tokens(part)]
        logprobs = logits.float().log_softmax(dim=-1)
        most = min(max(part.sequence.job.prompt_logprobs or 0 for part in parts), logits.shape[1])
        self._tokens = tokens
        self._own = logprobs.gather(1, torch.tensor(tokens, device=logits.device).unsqueeze(1))
        self._ranks = (logprobs > self._own).sum(dim=-1) + 1
        self._best = logprobs.topk(most)

    def read(self) -> Iterator[tuple[ScheduledChunk, list[TokenLogprob]]]:
        """Raises `NotFiniteError`."""
        if not bool(self._own.isfinite().all()):
            raise NotFiniteError
        best = [
            list(zip(*pair, strict=True)) for pair in zip(self._best[1].tolist(), self._best[0].tolist(), strict=True)
        ]
        rows = zip(self._tokens, self._own.squeeze(1).tolist(), best, self._ranks.tolist(), strict=True)
        for part in self._parts:
            top = part.sequence.job.prompt_logprobs
            scored = [next(rows) for _ in range(part.scored)]
            yield part, [TokenLogprob(token, own, tuple(best[:top]), rank) for token, own, best, rank in scored]


def _scored_tokens(part: ScheduledChunk) -> list[int]:
    return part.sequence.tokens[part.start + 1 : part.start + 1 + part.scored]
