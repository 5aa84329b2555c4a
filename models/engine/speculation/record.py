"""Drafts from a sequence's own text, and how often drafts were correct, per sequence and overall."""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.engine.sequence import SequenceState

LONGEST = 8  # tokens of a draft
PRIOR = 0.5
SHARE = 0.15  # weight of one outcome in the estimate
SHARE_OF_ALL = 0.02
PROBE = 32  # how often a draft is skipped before one token is tried again
CERTAIN = 0.99


class Chance:
    """The chance that a draft token is correct if those before it were; `all_sequences`: the same over all of them."""

    __slots__ = ("_all_sequences", "_left_out", "_share", "value")

    def __init__(self, all_sequences: Chance | None = None) -> None:
        self._all_sequences = all_sequences
        self._share = SHARE_OF_ALL if all_sequences is None else SHARE
        self._left_out = 0
        self.value: float = PRIOR if all_sequences is None else all_sequences.value

    def worth(self, least: float) -> int:
        """How many tokens each have a chance of at least `least`; now and then one more is tried."""
        if self.value < least:
            self._left_out += 1
            return int(self._left_out % PROBE == 0)
        return LONGEST if least <= 0 else min(LONGEST, int(math.log(least) / math.log(min(self.value, CERTAIN))))

    def learn(self, guessed: int, right: int) -> None:
        for _ in range(right):
            self.value += self._share * (1 - self.value)
        if right < guessed:
            self.value -= self._share * self.value
        if self._all_sequences is not None:
            self._all_sequences.learn(guessed, right)


LENGTHS = (4, 2)  # tokens that must match, longer first
REACH = 8192  # tokens of a long prompt that are searched: indexing them delays other sequences


class Lookup:
    """Prompt lookup: an answer often repeats what stands in its prompt, so what came after its last few tokens before
    is guessed to come after them again (the n-gram drafts of "Prompt Lookup Decoding", A. Saxena 2023).

    It keeps the positions of all short n-grams of one sequence and reads each token once.
    """

    __slots__ = ("_known", "_read")

    def __init__(self, tokens: Sequence[int]) -> None:
        self._known: dict[tuple[int, ...], int] = {}
        self._read = max(0, len(tokens) - REACH)

    def guess(self, tokens: Sequence[int], most: int) -> tuple[int, ...]:
        """Up to `most` tokens that followed the last occurrence of the last tokens of `tokens`."""
        for end in range(self._read + 1, len(tokens)):
            for length in LENGTHS:
                if end - length >= 0:
                    self._known[tuple(tokens[end - length : end])] = end
        self._read = max(self._read, len(tokens) - 1)
        for length in LENGTHS:
            if len(tokens) >= length and (at := self._known.get(tuple(tokens[-length:]))) is not None:
                return tuple(tokens[at : at + most])
        return ()


class DraftRecord:
    """The record of one sequence: its text, and the chances of both ways to draft; `last` is the one used last."""

    __slots__ = ("copied", "draft", "last", "lookup")

    def __init__(self, sequence: SequenceState, copied: Chance, draft: Chance) -> None:
        self.lookup = Lookup(sequence.tokens)
        self.copied = self.last = Chance(copied)
        self.draft = Chance(draft)


SHARE = 0.1  # weight of a new measurement in the estimate of its size class
UNTRIED = 0.3  # so that a draft token that is as likely right as wrong is tried
OUTLIER = 3.0  # a step that takes this many times as long was delayed by something else


class Cost:
    """The measured cost of a step by its number of tokens: seconds = fixed + each * tokens."""

    def __init__(self) -> None:
        self._means: dict[int, tuple[float, float]] = {}  # by size class: mean tokens, mean seconds
        self._line: tuple[float, float] | None = None

    def learn(self, tokens: int, seconds: float) -> None:
        size = tokens.bit_length()
        known = self._means.get(size)
        if known is None:
            self._means[size] = float(tokens), seconds
        else:
            seconds = min(seconds, OUTLIER * known[1])
            self._means[size] = known[0] + SHARE * (tokens - known[0]), known[1] + SHARE * (seconds - known[1])
        self._line = None

    @property
    def known(self) -> bool:
        """Whether anything was measured yet; before, the other methods must not be called."""
        return bool(self._means)

    def of(self, tokens: float) -> float:
        """Seconds of a step."""
        fixed, each = self._fit()
        return fixed + each * tokens

    def each(self) -> float:
        """Seconds that one more token adds."""
        return self._fit()[1]

    def _fit(self) -> tuple[float, float]:
        """Least squares through the size classes; with a single one, a fixed share of it is attributed to tokens."""
        if self._line is None:
            points = list(self._means.values())
            x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
            spread = sum((tokens - x) ** 2 for tokens, _ in points)
            each = UNTRIED * y / x
            if spread:
                each = sum((tokens - x) * (seconds - y) for tokens, seconds in points) / spread
            each = min(max(each, 0.0), y / x)
            self._line = y - each * x, each
        return self._line
