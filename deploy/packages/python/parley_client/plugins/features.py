"""A feature: who may ask, what is decided about a request before its first token, what the model reads instead of its
prompt, and which of several answers readers get.

    Sender -> admit -> Asked -> decide -> Decision, in the log -> rewrite -> what the model reads -> choose -> answered

A worker may die between any two tokens. The next owner of the partition does not decide again: it has the decision from
the log, calls `rewrite` with it, and continues the answer where it was. So `rewrite` is a pure function of its
arguments: if it gives another prompt, the answer cannot go on, and ends as `partial`.

The policy's table `[plugins.NAME]` switches the feature on; the constructor gets it as a dictionary.
"""

# ruff: noqa: ARG002 - what is left out does nothing
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Decision = Any
"""Of what JSON holds: None, a bool, a number, a text, a list, a dictionary with texts as keys."""


class NoVectors(Exception):  # noqa: N818 - no failure of the feature
    """The worker has no embedder, or it is away. One line."""


class Worker(Protocol):
    """What the worker lends to a feature."""

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector of length 1 for each text, by the worker's embedder (PARLEY_EMBEDDER). Raises `NoVectors`."""


@dataclass(frozen=True, slots=True)
class Sender:
    """A request without its words. `at` is Unix milliseconds, `model` what the request names."""

    request_id: str
    user_id: str
    conversation_id: str
    tenant: str | None
    at: int
    model: str | None
    priority: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of several answers to a request. `mean_logprob` is the mean log probability of its tokens."""

    text: str
    mean_logprob: float


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `at` is Unix milliseconds. `prompt` is what the user says in this turn; private values in it are
    placeholders where the policy masks them. Earlier turns of the conversation are not in it.
    """

    request_id: str
    user_id: str
    conversation_id: str
    tenant: str | None
    at: int
    prompt: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the model reads. `instructions` stand before the conversation as a system message, behind those that the
    request or the service has; empty for none.
    """

    prompt: str
    instructions: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """How the answer has ended. `reason` is its finish reason, or the code of its error."""

    reason: str
    text: str
    model_version: str


class Feature(Protocol):
    """One in each worker. Its methods run on a thread of its own with an event loop, so they may block each other, and
    nothing else. A method that is left out costs nothing.
    """

    blocks: bool = True
    """False: each method is over in a millisecond, or awaits what takes longer. They run in the worker's own event loop
    then, without the change of threads.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Raise any error for settings that cannot be used: the worker does not start, or keeps its former policy."""

    def begin(self, worker: Worker) -> None:
        """Once, before all others: a feature keeps the worker if it needs it."""
        return

    async def admit(self, sender: Sender) -> None:
        """Before a model, a judge or an index sees anything of the request. Asked again if its worker dies before
        anything about the request is in the log, so a request that was admitted is admitted again.

        Raises `Refused` or `RateLimited` to end the request.
        """
        return

    async def decide(self, asked: Asked) -> Decision:
        """Once for an answer, before its first token; again if its worker dies before the decision is in the log. At
        most `MOST_DECISION_BYTES` as JSON. Readers of the topic `tokens` can read it.

        Raises `Refused` to end the request.
        """
        return None

    def rewrite(self, prompt: Prompt, decision: Decision) -> Prompt:
        """What the model reads. Called at each round and by each owner. The conversation keeps what the user said."""
        return prompt

    async def choose(self, question: str, candidates: Sequence[Candidate], earlier: Sequence[str]) -> int:
        """Which of the answers to a request with `best_of` readers get; the choice is in the log before its words.
        `question` is what the model read, `earlier` are the answers of the conversation, the oldest first. The first
        feature of the policy that has this method chooses.
        """
        return 0

    async def answered(self, asked: Asked, decision: Decision, answer: Answered) -> None:
        """Behind the commit of the answer; not called if the worker dies at that moment, or if an erasure covers it."""
        return

    def forget(self, user_id: str) -> None:
        """The user is erased: drop what is kept of them. Called by each worker that hears of it."""
        return

    def figures(self) -> Mapping[str, float]:
        """Its figures by name, for `parley:plugin_figure` of the worker's metrics. At most 32."""
        return {}

    async def close(self) -> None:
        """The worker ends, or the policy has the feature no longer and no answer needs it."""
        return
