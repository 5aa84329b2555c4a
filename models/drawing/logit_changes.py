"""What the penalties and biases of an answer do to its logits, kept from one token to the next.

Found anew for each token, they took time in proportion to prompt and answer: of a step of 32 answers behind 8,000
tokens each, a repetition penalty took 69 ms, longer than a model of 270 million parameters. A token changes one
place of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from models.interface.generation import Sampling


class LogitChanges:
    """Those of one answer. A logit is divided by its factor, a negative one is multiplied by it; then its addend is
    added.
    """

    __slots__ = ("_addends", "_biases", "_counts", "_factors", "_places", "_sampling", "_tokens")

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._sampling = sampling
        self._biases = {token: bias for token, bias in sampling.logit_bias if token >= 0}
        repeated = dict.fromkeys(prompt) if sampling.repetition_penalty != 1 else {}
        tokens = [*repeated, *(token for token in self._biases if token not in repeated)]
        self._places = {token: place for place, token in enumerate(tokens)}
        self._counts: dict[int, int] = {}
        self._tokens = np.array(tokens, dtype=np.int64)
        self._factors = np.ones(len(tokens), dtype=np.float64)
        self._factors[: len(repeated)] = sampling.repetition_penalty
        self._addends = np.array([self._biases.get(token, 0.0) for token in tokens], dtype=np.float64)

    @classmethod
    def of(cls, sampling: Sampling, prompt: Sequence[int], answer: Sequence[int] = ()) -> Self | None:
        """None if nothing changes, whatever the answer says."""
        if not sampling.changes_logits:
            return None
        changes = cls(sampling, prompt)
        for token in answer:
            changes.append(token)
        return changes

    @property
    def tokens(self) -> NDArray[np.int64]:
        """[count], each once; some may be beyond the vocabulary."""
        return self._tokens[: len(self._places)]

    @property
    def factors(self) -> NDArray[np.float64]:
        """[count]"""
        return self._factors[: len(self._places)]

    @property
    def addends(self) -> NDArray[np.float64]:
        """[count]"""
        return self._addends[: len(self._places)]

    def append(self, token: int) -> None:
        """The answer has one more token."""
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._tokens):
            self._grow()
        sampling = self._sampling
        count = self._counts[token] = self._counts.get(token, 0) + 1
        self._tokens[place] = token
        self._factors[place] = sampling.repetition_penalty
        penalty = sampling.presence_penalty + sampling.frequency_penalty * count
        self._addends[place] = self._biases.get(token, 0.0) - penalty

    def after(self, tokens: Sequence[int]) -> LogitChanges:
        """Those if the answer went on with `tokens`."""
        if not tokens:
            return self
        changes = LogitChanges(Sampling(), ())
        changes._sampling, changes._biases = self._sampling, self._biases
        changes._places, changes._counts = self._places.copy(), self._counts.copy()
        changes._tokens, changes._factors = self._tokens.copy(), self._factors.copy()
        changes._addends = self._addends.copy()
        for token in tokens:
            changes.append(token)
        return changes

    def _grow(self) -> None:
        size = max(64, 2 * len(self._tokens))
        self._tokens = np.resize(self._tokens, size)
        self._factors = np.resize(self._factors, size)
        self._addends = np.resize(self._addends, size)
