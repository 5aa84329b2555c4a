"""In what order the prompts of users are computed.

A prompt is due at the time when it came, plus the time that all prompts of its user and its tenant would take at
`PROMPTS_PER_S`, plus `CLASS_S` for each class of priority. So long prompts of one user delay no other's short one,
whatever priority they have; and what comes later overtakes them for that time only.
"""

from __future__ import annotations

from collections import Counter

from models.interface.fair_slots import Payer, Payers

PROMPTS_PER_S = 500
"""Tokens; what a slow CPU computes."""
CLASS_S = 5.0
"""What a class of priority is worth."""


class PromptBacklog:
    """The tokens that are still to be computed, by payer."""

    def __init__(self) -> None:
        self._tokens: Counter[Payer] = Counter()

    def add(self, payers: Payers, tokens: int) -> None:
        for payer in payers:
            self._tokens[payer] += tokens

    def remove(self, payers: Payers, tokens: int) -> None:
        for payer in payers:
            self._tokens[payer] -= tokens
            if not self._tokens[payer]:
                del self._tokens[payer]

    def turn(self, at: float, payers: Payers, tokens: int, priority: int) -> float:
        """When a prompt of so many tokens that came `at` is due, in seconds of the same clock."""
        if payers:  # the mean, so that a tenant's user has no more than another one
            tokens = sum(self._tokens[payer] for payer in payers) // len(payers)
        return at + tokens / PROMPTS_PER_S + priority * CLASS_S


class PendingPrompt:
    """A prompt that another program computes, until `end`: it counts in the backlog of its payers."""

    def __init__(self, backlog: PromptBacklog, payers: Payers, tokens: int) -> None:
        self._backlog, self._payers, self._tokens = backlog, payers, tokens
        self._is_pending = True
        backlog.add(payers, tokens)

    def turn(self, at: float, priority: int) -> float:
        return self._backlog.turn(at, self._payers, self._tokens, priority)

    def end(self) -> None:
        if self._is_pending:
            self._is_pending = False
            self._backlog.remove(self._payers, self._tokens)
