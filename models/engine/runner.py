"""Runs one step: packs its slices, calls the model once, draws the tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from models.checkpoints import Checkpoint
from models.engine.attention import NAME, Context
from models.engine.batch import pack
from models.engine.cache import KVCache
from models.engine.pages import PagePool
from models.engine.row import Slice
from models.sampler import sample


@dataclass(slots=True)
class StepTimes:
    """Where the time went, in seconds; for metrics and the benchmark."""

    steps: int = 0
    tokens: int = 0
    forward: float = 0.0
    total: float = 0.0


class Runner:
    def __init__(self, checkpoint: Checkpoint, cache: KVCache, pool: PagePool) -> None:
        self._model = checkpoint.model
        self._model.set_attn_implementation(NAME)
        self._cache = cache
        self._pool = pool
        self._device: torch.device = self._model.device
        self._dtype: torch.dtype = self._model.dtype
        self.times = StepTimes()

    @torch.inference_mode()
    def run(self, slices: Sequence[Slice]) -> list[tuple[Slice, int | None]]:
        """The token of every slice that draws; None where its logits are not finite."""
        batch = pack(slices, self._pool, self._device, self._dtype)
        begun = time.perf_counter()
        logits = self._model(
            input_ids=batch.tokens,
            position_ids=batch.positions,
            use_cache=False,
            logits_to_keep=batch.last,
            context=Context(batch, self._cache),
        ).logits[0]
        self.times.forward += time.perf_counter() - begun
        self.times.steps += 1
        self.times.tokens += batch.tokens.shape[1]
        if not batch.slices:
            return []
        drawn = sample(logits, [part.row.draw() for part in batch.slices])
        tokens, finite = drawn.tokens.tolist(), drawn.finite.tolist()
        return [(p, t if ok else None) for p, t, ok in zip(batch.slices, tokens, finite, strict=True)]

    def scrub(self, pages: Sequence[int]) -> None:
        self._cache.scrub(pages)
