"""A judge: to which categories a text belongs. `[guard.judges.NAME]` of the policy switches it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Judge(Protocol):
    """One in each worker. A text belongs to a category if its score is at least `threshold`, or what the policy's
    `thresholds` say. `[guard] prompt` and `answer` say what happens then.

    The scores of a text follow from the text alone: a text that is judged again has the same verdict.
    """

    categories: Sequence[str]
    """All that it knows; no other judge has one of them."""
    threshold: float = 0.5

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` is the table `[guard.judges.NAME]`. Raise any error for what cannot be used."""

    async def scores(self, texts: Sequence[str]) -> Sequence[Mapping[str, float]]:
        """For each text the score of each category, 0 to 1. Raise any error if there is no verdict: what happens to the
        request then says `on_failure` of the policy.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """The worker ends, or the policy has another judge."""
