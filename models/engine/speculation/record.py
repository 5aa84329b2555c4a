"""How often drafts were correct, per sequence and overall."""

from __future__ import annotations

import math

from models.engine.sequence import SequenceState
from models.engine.speculation.lookup import Lookup

LONGEST = 8  # tokens of a draft
PRIOR = 0.5
SHARE = 0.15  # weight of one outcome in the estimate
SHARE_OF_ALL = 0.02
PROBE = 32  # how often a draft is skipped before one token is tried again
CERTAIN = 0.99


class Chance:
    """The chance that a draft token is correct if those before it were; `all_rows` is the same over all sequences."""

    __slots__ = ("_all_rows", "_left_out", "_share", "value")

    def __init__(self, all_rows: Chance | None = None) -> None:
        self._all_rows = all_rows
        self._share = SHARE_OF_ALL if all_rows is None else SHARE
        self._left_out = 0
        self.value: float = PRIOR if all_rows is None else all_rows.value

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
        if self._all_rows is not None:
            self._all_rows.learn(guessed, right)


class Record:
    """The record of one sequence: its text, and the chances of both ways to draft; `last` is the one used last."""

    __slots__ = ("draft", "found", "last", "lookup")

    def __init__(self, row: SequenceState, found: Chance, draft: Chance) -> None:
        self.lookup = Lookup(row.tokens)
        self.found = self.last = Chance(found)
        self.draft = Chance(draft)
