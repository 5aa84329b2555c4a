"""Dialogues as token ids with the weight of each token in the loss.

Only answers are learnt. What an answer copies from the dialogue weighs more: it is what the model is for, and a small
part of the text. Beside dialogues there are sequences of random tokens to be repeated, from which attention learns to
copy before it learns anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tokenizers import Tokenizer

from tests.demo_model.dialogues import Dialogue
from tests.demo_model.tokenizer import ASSISTANT, END, MARKERS, SIGNATURE, SYSTEM, USER

COPIED = 5.0
REPEATED = 2.0


@dataclass(slots=True)
class Example:
    """Token ids, and the weight of having predicted each."""

    ids: list[int]
    weights: list[float]

    def add(self, ids: Sequence[int], weights: Sequence[float]) -> None:
        self.ids += ids
        self.weights += weights


class Encoder:
    """Writes what the chat template writes, with weights."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab()
        self._system, self._user, self._assistant, self._end = (
            vocabulary[marker] for marker in (SYSTEM, USER, ASSISTANT, END)
        )
        self._words = range(len(MARKERS), len(vocabulary))
        self._pairs = [vocabulary[f"{pair:02}"] for pair in range(100)]

    def dialogue(self, dialogue: Dialogue) -> Example:
        example = Example([], [])
        if dialogue.has_tool:
            self._add_silent(example, [self._system, *self._ids(f" tools: {SIGNATURE}"), self._end])
        if dialogue.system:
            self._add_silent(example, [self._system, *self._ids(" " + dialogue.system), self._end])
        for turn in dialogue.turns:
            self._add_silent(example, [self._user, *self._ids(" " + turn.user), self._end, self._assistant])
            if turn.lookup is not None:
                self._add_answer(example, turn.lookup.call, (turn.lookup.order,))
                result = self._ids(f" result: {turn.lookup.result}")
                self._add_silent(example, [self._system, *result, self._end, self._assistant])
            self._add_answer(example, turn.answer, turn.values)
        return example

    def repetition(self, rng: Random) -> Example:
        """Random tokens, said by the user and said again by the assistant."""
        example = Example([], [])
        pool = (
            rng.sample(self._words, 40)
            if rng.random() < 0.5
            else rng.sample(self._pairs, 20) + rng.sample(self._words, 5)
        )
        for _ in range(rng.randint(2, 5)):
            said = rng.choices(pool, k=rng.randint(4, 16))
            self._add_silent(example, [self._user, *said, self._end, self._assistant])
            example.add([*said, self._end], [REPEATED] * len(said) + [1.0])
        return example

    def _add_answer(self, example: Example, answer: str, values: Sequence[str]) -> None:
        encoded = self._tokenizer.encode(answer, add_special_tokens=False)
        copied = [(at, at + len(value)) for value in values if (at := answer.find(value)) >= 0]
        weights = [
            COPIED if any(start < last and first < end for first, last in copied) else 1.0
            for start, end in encoded.offsets
        ]
        example.add([*encoded.ids, self._end], [*weights, 1.0])

    def _add_silent(self, example: Example, ids: Sequence[int]) -> None:
        example.add(ids, [0.0] * len(ids))

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids
