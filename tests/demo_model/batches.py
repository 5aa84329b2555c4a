"""Batches of examples, the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.demo_model.dialogues import Split, dialogues
from tests.demo_model.encoding import Encoder, Example
from tests.demo_model.phrasing import seeded
from tests.demo_model.tokenizer import CONTEXT

_POOL = 128


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of tokens, filled up on the right; being causal, attention never looks there."""

    ids: Tensor
    weights: Tensor
    positions: Tensor


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is learnt until which part of all steps: dialogues of so many tokens, and random ones to be repeated."""

    until: float
    longest: int
    repetitions: float


class Batches:
    """An endless stream; `lesson` may be changed at any time and holds for the next examples."""

    def __init__(self, encoder: Encoder, seed: int, tokens: int) -> None:
        self.lesson = Lesson(until=1.0, longest=CONTEXT, repetitions=0.0)
        self._encoder = encoder
        self._tokens = tokens
        self._rng = seeded(f"batches {seed}")
        self._dialogues = dialogues(seed, Split.TRAINING)

    def __iter__(self) -> Iterator[Batch]:
        while True:
            pool = sorted((self._example() for _ in range(_POOL)), key=lambda example: len(example.ids))
            rows = self._rows(pool)
            self._rng.shuffle(rows)
            yield from (self._batch(row) for row in rows)

    def _example(self) -> Example:
        if self._rng.random() < self.lesson.repetitions:
            return self._encoder.repetition(self._rng)
        while len((example := self._encoder.dialogue(next(self._dialogues))).ids) > self.lesson.longest:
            pass
        return example

    def _rows(self, pool: list[Example]) -> list[list[Example]]:
        """Examples of like length together, as many as `tokens` have room for."""
        rows: list[list[Example]] = [[]]
        for example in pool:
            if rows[-1] and len(example.ids) * (len(rows[-1]) + 1) > self._tokens:
                rows.append([])
            rows[-1].append(example)
        return rows

    def _batch(self, examples: list[Example]) -> Batch:
        width = max(len(example.ids) for example in examples)

        def filled(values: list[int] | list[float]) -> list[int | float]:
            return [*values, *[0] * (width - len(values))]

        return Batch(
            torch.tensor([filled(example.ids) for example in examples]),
            torch.tensor([filled(example.weights) for example in examples], dtype=torch.float32),
            torch.tensor([self._positions(width) for _ in examples]),
        )

    def _positions(self, width: int) -> list[int]:
        """0, 1, 2..., at times with a gap: what is far away in a long conversation is found as if it were near."""
        gap = self._rng.randrange(CONTEXT - width + 1) if self._rng.random() < 0.3 else 0
        at = self._rng.randrange(width)
        return [position + gap * (position >= at) for position in range(width)]
