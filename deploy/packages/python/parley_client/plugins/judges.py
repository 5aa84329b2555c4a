"""A judge: to which categories a text belongs. `[guard.judges.NAME]` of the policy switches it on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

turns: ContextVar[Callable[[], AbstractAsyncContextManager[None]]] = ContextVar("turns", default=nullcontext)
"""Set by the worker for a judgement."""


class NoVerdict(Exception):  # noqa: N818
    """There is no verdict about a text. Its words, one line without any of the text, go into the worker's log."""


def turn() -> AbstractAsyncContextManager[None]:
    """A part of a judgement, of a fraction of a second. Between two parts the texts of others have their turn; a part
    that comes too late raises `TimeoutError`. For judges that do not block.
    """
    return turns.get()()


class Judge(Protocol):
    """One in each worker. A text belongs to a category if its score is at least `threshold`, or what the policy's
    `thresholds` say. `[guard] prompt` and `answer` say what happens then.

    The scores of a text follow from the text alone: a text that is judged again has the same verdict.
    """

    categories: Sequence[str]
    """All that it knows; no other judge has one of them."""
    threshold: float = 0.5
    width: int = 8
    """How many judgements may be under way at once."""
    blocks: bool = True
    """False: its methods await all that takes time, each part of it in a `turn`. They run in the worker's own event
    loop then. True: on a thread of its own, and each judgement is one turn.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` is the table `[guard.judges.NAME]`. Raise any error for what cannot be used."""

    async def scores(self, texts: Sequence[str]) -> Sequence[Mapping[str, float]]:
        """For each text the score of each category, 0 to 1. Raise any error if there is no verdict: what happens to the
        request then says `on_failure` of the policy. `NoVerdict` says why.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """The worker ends, or the policy has another judge."""
        return
