"""Values of labels that must not grow without end."""

from __future__ import annotations

OTHER = "other"
LONGEST = 64


class FirstCome:
    """Labels whose values users choose: the first N values have their own series, all others share one.

    A value keeps its series once it has one, so no counter ever decreases; ranking them is up to the query.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        value = value[:LONGEST]
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value
