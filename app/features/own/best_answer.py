"""Choose the answer with the highest score: its mean log probability plus, if the conversation has earlier answers and
the worker an embedder, its cosine to their mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from parley_client.plugins import Candidate, Feature, NoVectors, Worker

_MOST_EARLIER = 5
_PATIENCE_S = 5.0
"""How long a choice waits for the embedder."""


class BestAnswer(Feature):
    blocks = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        del settings
        self._worker: Worker | None = None

    def begin(self, worker: Worker) -> None:
        self._worker = worker

    async def choose(self, question: str, candidates: Sequence[Candidate], earlier: Sequence[str]) -> int:
        del question
        nearness = await self._nearness([one.text for one in candidates], earlier[-_MOST_EARLIER:])
        scores = [one.mean_logprob + near for one, near in zip(candidates, nearness, strict=True)]
        return int(np.argmax(scores))

    async def _nearness(self, texts: Sequence[str], earlier: Sequence[str]) -> Sequence[float]:
        if self._worker is None or not earlier:
            return [0.0] * len(texts)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                vectors = np.asarray(await self._worker.embed([*texts, *earlier]))
        except (NoVectors, TimeoutError):
            return [0.0] * len(texts)
        usual = vectors[len(texts) :].mean(axis=0)
        length = float(np.linalg.norm(usual)) or 1.0
        return [float(vector @ usual) / length for vector in vectors[: len(texts)]]
