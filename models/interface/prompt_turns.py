"""In what order the prompts of users are computed.

A prompt is due at the time when it came, plus the time that all prompts of its user and its tenant would take at
`PROMPTS_PER_S`, plus `CLASS_S` for each class of priority. So long prompts of one user delay no other's short one,
whatever priority they have; and what comes later overtakes them for that time only.
"""

from __future__ import annotations

from collections import Counter

from models.interface.fair_slots import Owner, Owners

PROMPTS_PER_S = 500
"""Tokens; what a slow CPU computes."""
CLASS_S = 5.0
"""What a class of priority is worth."""


class PromptBacklog:
    """The tokens that are still to be computed, by owner."""

    def __init__(self) -> None:
        self._tokens: Counter[Owner] = Counter()

    def add(self, owners: Owners, tokens: int) -> None:
        for owner in owners:
            self._tokens[owner] += tokens

    def remove(self, owners: Owners, tokens: int) -> None:
        for owner in owners:
            self._tokens[owner] -= tokens
            if not self._tokens[owner]:
                del self._tokens[owner]

    def turn(self, at: float, owners: Owners, tokens: int, priority: int) -> float:
        """When a prompt of so many tokens that came `at` is due, in seconds of the same clock."""
        if owners:  # the mean, so that a tenant's user has no more than another one
            tokens = sum(self._tokens[owner] for owner in owners) // len(owners)
        return at + tokens / PROMPTS_PER_S + priority * CLASS_S


class PendingPrompt:
    """A prompt that another program computes, until `end`: it counts in the backlog of its owners."""

    def __init__(self, backlog: PromptBacklog, owners: Owners, tokens: int) -> None:
        self._backlog, self._owners, self._tokens = backlog, owners, tokens
        self._is_pending = True
        backlog.add(owners, tokens)

    def turn(self, at: float, priority: int) -> float:
        return self._backlog.turn(at, self._owners, self._tokens, priority)

    def end(self) -> None:
        if self._is_pending:
            self._is_pending = False
            self._backlog.remove(self._owners, self._tokens)
