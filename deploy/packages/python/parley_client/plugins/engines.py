"""An engine: what writes the answers. `[models.NAME] engine = "..."` of the policy names it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class EngineJob:
    """An answer to write. `messages` have `role` and `content`, the oldest first. `written` is the beginning of the
    answer that readers have already: what comes continues it. `seed` is the same whenever the answer is written again.
    """

    messages: Sequence[Mapping[str, str]]
    written: str
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: Sequence[str]
    user: str


class Engine(Protocol):
    """One for each model that names it. Its methods run on a thread of its own with an event loop."""

    version: str
    """Names what writes, as `NAME@BYTES`: while it is the same, the same job has the same answer."""
    context_length: int
    """Most bytes of the messages and the answer together."""
    continues: bool = False
    """Whether a job with `written` goes on with the very words that the job without it would have had. If not, an
    answer whose worker dies ends as `partial`, with what readers have.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings` is the table `[models.NAME.settings]`. Raise any error for what cannot be used."""

    def write(self, job: EngineJob) -> AsyncIterator[str]:
        """The answer in pieces of text, of at most `max_tokens` tokens with `written`; their end is that of the answer.
        Closed early if nobody reads it any more. Raise any error for what fails: the next model of the fallback chain
        goes on.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """No answer is under way any more."""
        return
