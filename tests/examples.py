"""How many examples a property test is tried with."""

from __future__ import annotations

from hypothesis import settings


def examples(factor: float) -> settings:
    """So many times as many as others, of `make test` and of `make search` alike."""
    return settings(max_examples=max(1, round(factor * settings().max_examples)))
