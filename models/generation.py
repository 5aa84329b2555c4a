"""What goes into an engine and what comes out of it, as plain data.

An engine is given a `Job` and answers with a stream of `Delta`s that ends in exactly one `End` or `Failure`.

What is said is a pure function of the job: sampling draws token `i` with noise keyed by `(seed, i)`, and the text that
stands after token `i` depends on the tokens up to `i` alone. So a job that is submitted again with the first tokens of
its answer in `said` goes on as if it had never stopped, on any machine, in any batch.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Priority(enum.IntEnum):
    """Lower runs first."""

    INTERACTIVE = 0
    STANDARD = 1
    BATCH = 2


class FinishReason(enum.StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    FILTERED = "filtered"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn; OpenAI's meaning. `temperature` 0 is greedy, `top_k` 0 and `top_p` 1 are off.

    `min_p` leaves tokens that are at least so likely as a share of the likeliest. Presence and frequency penalties
    count the answer, `repetition_penalty` (transformers' meaning, 1 is off) the prompt as well. `logprobs`: so many of
    the likeliest tokens are told with each one; None tells nothing.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None


class ShapeKind(enum.StrEnum):
    JSON = "json"
    REGEX = "regex"
    CHOICES = "choices"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the text of an answer must be, whenever it ends by itself.

    `rule` is a JSON schema as JSON text, a regular expression that matches the whole answer, or a JSON list of strings.
    """

    kind: ShapeKind
    rule: str


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What a request that does not say gets: the checkpoint's own generation config."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to be generated.

    `prompt` and `said` are token ids; `said` is the beginning of the answer that readers already have. `max_tokens`
    counts the whole answer, `said` included. `shape` binds the text; what it allows and nothing else is drawn. An
    answer that `max_tokens` cuts short keeps to the shape as far as it goes. `deadline` is Unix time in seconds. `user`
    and `tenant` are for fairness, and bound who may take over what is computed: other users share the first `shared`
    tokens of the prompt and no more. `adapter` names a LoRA adapter that the engine knows; empty is the model itself.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    said: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    priority: Priority = Priority.STANDARD
    deadline: float | None = None
    user: str = ""
    tenant: str = ""
    shared: int = 0
    adapter: str = ""
    shape: Shape | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely the model held a token, before temperature and filters, and which it held likeliest."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Delta:
    """Tokens `index` to `index + len(tokens)` of the answer, end-of-sequence never among them.

    `text` is what they add: never half a character, and without what may yet become a stop string. `logprobs` has one
    for each token where the job asked for them.
    """

    index: int
    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The answer's end; `index` counts its tokens, `text` is what was still held back for a stop string."""

    index: int
    reason: FinishReason
    usage: Usage
    text: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The answer cannot be finished; `message` is one line for people. `index` counts the tokens said before it."""

    index: int
    code: str
    message: str


StreamEvent = Delta | End | Failure


class Stream(Protocol):
    """The events of one job, for one reader."""

    def __aiter__(self) -> AsyncIterator[StreamEvent]: ...

    @property
    def admitted_at(self) -> float | None:
        """Unix time in seconds at which the engine began with it; None while it waits."""

    def cancel(self, reason: FinishReason = FinishReason.CANCELLED) -> None:
        """Ask for the end; the stream still ends with its `End`. Idempotent, never blocks."""


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """An engine as it is now. `kv_cache_usage` is the share of pages in use, 0 to 1; `preemptions` grows for ever.

    `step_s` is for how long the step in hand has been running, in seconds; 0 between steps: the engine's heartbeat.
    """

    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    preemptions: int = 0
    steps: int = 0
    step_s: float = 0.0


class Engine(Protocol):
    """Generates many answers at once. All methods are called from one event loop and never block it."""

    @property
    def model_version(self) -> str: ...

    @property
    def context_length(self) -> int:
        """Most tokens that a prompt and its answer can have together."""

    @property
    def has_room(self) -> bool:
        """Whether a job submitted now would begin with the next step."""

    @property
    def figures(self) -> EngineFigures:
        """Cheap, and not exact while a step runs."""

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        """Begin all `jobs` in one wake-up of the engine."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """End the engine's thread; open streams are abandoned without an end."""
