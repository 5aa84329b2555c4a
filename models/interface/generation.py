"""The input and output of an engine, as plain data.

An engine takes a `Job` and returns a stream of `Delta`s that ends in exactly one `End` or `Failure`.

The answer is a pure function of the job: sampling draws token `i` with noise keyed by `(seed, i)`, and the text after
token `i` depends only on the tokens up to `i`. A job that is submitted again with the first tokens of its answer in
`generated` therefore continues as if it had never stopped, on any machine and in any batch.
"""

from __future__ import annotations

import enum
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from models.interface.chat import ModelCall

if TYPE_CHECKING:
    from models.text.plain_dialogue import PlainStart
    from models.text.reasoning import Reasoning
    from models.tools.format import ToolFormat
    from models.tools.parser import CallDelta


class JobPriority(enum.IntEnum):
    """A lower number runs first."""

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
    TOOL_CALLS = "tool_calls"


LEAST_TOP_P = 1e-6
"""What servers that take no 0 take for it: the likeliest token alone."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is drawn; OpenAI's meaning. `temperature` 0 is greedy, `top_k` 0 and `top_p` 1 are off.

    `min_p` keeps tokens whose probability is at least that share of the likeliest token's. Presence and frequency
    penalties count the answer, `repetition_penalty` (transformers' meaning, 1 is off) the prompt as well. `logprobs`:
    how many of the likeliest tokens are reported with each token; None reports nothing.
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

    @property
    def is_determined(self) -> bool:
        """Whether the text so far alone determines the next token: neither noise does, nor what was written when."""
        return not (self.temperature > 0 or self.presence_penalty or self.frequency_penalty)

    @property
    def changes_logits(self) -> bool:
        """Whether a penalty or a bias does."""
        penalized = self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1
        return bool(self.logit_bias or penalized)


class ConstraintKind(enum.StrEnum):
    JSON = "json"
    REGEX = "regex"
    CHOICES = "choices"
    GRAMMAR = "grammar"
    TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class OutputConstraint:
    """An output constraint: the form of an answer's text, if the answer ends by itself.

    `rule` is a JSON schema as JSON text, a regular expression that matches the whole answer, a JSON list of strings,
    a grammar of a request in Lark or GBNF, or tools and how they may be called (models/tools/rule.py).
    """

    kind: ConstraintKind
    rule: str


class ConstraintError(Exception):
    """A constraint has no meaning or is too large; one line for people."""


@dataclass(frozen=True, slots=True)
class LowConfidence:
    """The answer ends with `stop` once the mean log probability of its last `over` tokens is below `mean_below`.

    `before` are the log probabilities of the last generated tokens that readers have already, at most `over`.
    """

    mean_below: float
    over: int
    before: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """Defaults for requests that leave them out: the checkpoint's own generation config."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to generate.

    `prompt` and `generated` are token ids; `generated` is the beginning of the answer that readers have already.
    `max_tokens` counts the whole answer, `generated` included. The text satisfies `constraint`; an answer that
    `max_tokens` cuts short satisfies it as far as it goes. `user` and `tenant` are for fairness, and limit the reuse of
    computed pages: other users share the first `shared` tokens of the prompt and no more. `adapter` names a LoRA
    adapter of the engine; empty means the model itself. No end-of-sequence token is drawn before the answer has
    `min_tokens`. `tools` is the form in which the answer may call tools; such calls are not text. With `reasoning` the
    deltas carry the model's reasoning apart from its text. With `plain` the answer ends before a next speaker's line,
    if it has `min_tokens`. `prompt_logprobs`: how many of the likeliest tokens are reported with each token of the
    prompt; None reports nothing, and neither does a job with `generated`. `stop_when` needs `sampling.logprobs`.
    `trace` are headers that name the request's trace (W3C Trace Context), for engines that ask others.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    generated: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    priority: JobPriority = JobPriority.STANDARD
    user: str = ""
    tenant: str = ""
    shared: int = 0
    adapter: str = ""
    constraint: OutputConstraint | None = None
    min_tokens: int = 0
    tools: ToolFormat | None = None
    reasoning: Reasoning | None = None
    plain: PlainStart | None = None
    prompt_logprobs: int | None = None
    stop_when: LowConfidence | None = None
    trace: tuple[tuple[str, bytes], ...] = ()

    @property
    def seed_of_rest(self) -> int:
        """For a generator that begins with the token behind `generated`: another seed at each position, since the same
        noise again would make a resumed answer repeat its beginning. 63 bits.
        """
        return (self.sampling.seed + _GOLDEN * len(self.generated)) & _MASK63


_GOLDEN = 0x9E3779B97F4A7C15
_MASK63 = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's log probability, before temperature and filters, and those of the likeliest tokens.

    `rank` is 1 for the likeliest token of the vocabulary; None for a drawn token, where it is not computed.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """Tokens `index` to `index + len(tokens)` of the answer, never an end-of-sequence token.

    `text` is what they add: it never ends in half a character or in the beginning of a possible stop string. `logprobs`
    has one entry per token if the job asked for them; `calls` are the parts of calls that the tokens add. The first
    `Delta` has the `prompt_logprobs`, one entry per token of the prompt but the first; it has no tokens if the answer
    ends at once. `redraws`: from here on the answer has other words than it would have had, as what has written its
    beginning is gone.
    """

    index: int
    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()
    calls: tuple[CallDelta, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    reasoning: str = ""
    redraws: bool = False


MOST_WEIGHT = 1 << 18
"""Of a delta that is merged from several: far below the size of a record."""
_TOKEN_WEIGHT = 12
_CHARACTER_WEIGHT = 6  # an escape in JSON
_LOGPROB_WEIGHT = 256  # a token's text is not known here


def weight(delta: Delta) -> int:
    """About how many bytes its event takes at most."""
    characters, entries = len(delta.text) + len(delta.reasoning), 0
    if delta.calls:
        characters += sum(len(call.name) + len(call.arguments) for call in delta.calls)
    if delta.logprobs or delta.prompt_logprobs:
        entries = sum(1 + len(one.top) for one in (*delta.logprobs, *delta.prompt_logprobs))
    return _TOKEN_WEIGHT * len(delta.tokens) + _CHARACTER_WEIGHT * characters + _LOGPROB_WEIGHT * entries


def merged(parts: Sequence[Delta]) -> Delta:
    """Successive deltas as one."""
    if len(parts) == 1:
        return parts[0]
    return Delta(
        parts[0].index,
        tuple(chain.from_iterable([part.tokens for part in parts])),
        "".join([part.text for part in parts]),
        tuple(chain.from_iterable([part.logprobs for part in parts])),
        tuple(chain.from_iterable([part.calls for part in parts])),
        parts[0].prompt_logprobs,
        "".join([part.reasoning for part in parts]),
        any(part.redraws for part in parts),
    )


@dataclass(frozen=True, slots=True)
class End:
    """The answer's end; `index` counts its tokens, `text` is text that was held back for a stop string or a call.

    `calls` are the answer's complete calls of tools, `reasoning` is reasoning that was held back for its end.
    """

    index: int
    reason: FinishReason
    usage: Usage
    text: str = ""
    calls: tuple[ModelCall, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """The answer cannot be finished; `message` is one line for people. `index` counts the tokens before it."""

    index: int
    code: str
    message: str


StreamEvent = Delta | End | Failure


def refusal_of(job: Job, room: int, context_length: int, *, knows_adapter: bool) -> Failure | None:
    """Why an engine with `room` for so many more jobs does not take this one."""
    generated = len(job.generated)
    if room <= 0:
        return Failure(generated, "overloaded", "the engine's queue is full; try again later")
    if job.adapter and not knows_adapter:
        return Failure(generated, "model_not_found", f"there is no adapter {job.adapter}")
    if not job.prompt:
        return Failure(generated, "invalid_request", "the prompt has no tokens")
    if len(job.prompt) >= context_length:
        line = f"the prompt has {len(job.prompt)} tokens; the model takes {context_length - 1} at most"
        return Failure(generated, "prompt_too_long", line)
    return None


class Stream(Protocol):
    """The events of one job, for one reader."""

    def __aiter__(self) -> AsyncIterator[StreamEvent]: ...

    @property
    def admitted_at(self) -> float | None:
        """Unix time in seconds at which the engine began it; None while it waits."""

    @property
    def ended(self) -> bool:
        """Whether all of its events are there, read or not."""

    def on_end(self, call: Callable[[], None]) -> None:
        """Call this, and nothing that was given before, when its last event is there before it is read. A stream that
        makes each event when it is read never does.
        """

    def cancel(self, reason: FinishReason = FinishReason.CANCELLED) -> None:
        """Request the end; the stream still ends with its `End`. Idempotent, never blocks."""


@dataclass(frozen=True, slots=True)
class ServerStats:
    """An outside server's current state. `address` has no credentials; `failures` never decreases; `first_token_s` is
    the moving average of the time to the first token, 0 before one.
    """

    address: str
    is_asked: bool
    running: int
    failures: int
    first_token_s: float


STEP_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, math.inf)
"""Bounds of a histogram of the sequences in a step."""


@dataclass(frozen=True, slots=True)
class StepRows:
    """Steps by the sequences that they computed, one count for each bound of `STEP_ROWS`; and the sum of these."""

    counts: tuple[int, ...] = (0,) * len(STEP_ROWS)
    rows: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """An engine's current state. `kv_cache_usage` is the fraction of pages in use, 0 to 1; `preemptions` never
    decreases.

    `step_s` is the duration of the current step in seconds, 0 between steps: the engine's heartbeat. `servers` are
    those that the engine asks, if it computes nothing itself.
    """

    running: int = 0
    waiting: int = 0
    kv_cache_usage: float = 0.0
    preemptions: int = 0
    steps: int = 0
    step_rows: StepRows = StepRows()
    step_s: float = 0.0
    servers: tuple[ServerStats, ...] = ()


class Engine(Protocol):
    """Generates many answers at once. All methods are called from one event loop and never block it."""

    @property
    def model_version(self) -> str: ...

    @property
    def context_length(self) -> int:
        """Most tokens of a prompt and its answer together."""

    @property
    def has_room(self) -> bool:
        """Whether a job submitted now would begin with the next step."""

    @property
    def stats(self) -> EngineStats:
        """Cheap, and approximate while a step runs."""

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        """Submit all `jobs` with one wake-up of the engine."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Stop the engine's thread; open streams end without an end event."""
