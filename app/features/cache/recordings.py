"""Answers to identical requests: kept for a while, and shared while they are generated.

An answer is a function of its job (`Job`), so two requests have the same answer if their jobs are equal
in all that this function depends on. The key is the hash of that, of the model version, and of the scope, which is
the user, or the tenant with `scope = "tenant"`. Only deterministic requests are looked up: those with temperature 0 or
with a seed.

    RUNNING --end `stop`, `length` or `tool_calls`--> COMPLETE --`ttl_s`--> gone
       '------ any other end, a stop, an erasure ----> ABANDONED

The first request of a key is the leader: its events are recorded as the engine produces them. Equal requests follow the
recording from its beginning, at once if that is complete. A follower whose recording is abandoned generates the rest by
itself, with the same tokens. The cache is memory of one worker: after a restart it is empty.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
from cachetools import TTLCache

from app.policy.file import CacheRules, Policy
from app.wire.request import Request
from app.wire.tools import ToolMode
from models.interface.generation import Delta, End, Failure, FinishReason, Job, StreamEvent, Usage
from models.interface.token_stream import TokenStream

_COMPLETE = frozenset({FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS})
_APART = frozenset({"id", "priority", "user", "tenant", "shared", "generated", "sampling", "tools"})
"""The fields of a job that do not change its answer, and those that are hashed in another form."""
_EVENT_BYTES = 200
"""What an event occupies in memory beside its text, tokens and log probabilities."""
_LOGPROB_BYTES = 150
_RIVAL_BYTES = 120


class RecordingState(enum.Enum):
    RUNNING = "running"
    COMPLETE = "complete"
    ABANDONED = "abandoned"


@dataclass(slots=True)
class CacheStats:
    """Requests by what the cache did for them. `joins` are hits whose answer was still being generated."""

    hits: int = 0
    joins: int = 0
    misses: int = 0
    saved_tokens: int = 0


@dataclass(slots=True, eq=False)
class Recording:
    """The events of one answer, and the streams that follow it. `size`: about how many bytes they occupy; a recording
    above `most` is abandoned.
    """

    user_id: str
    request_id: str
    prompt_tokens: int
    most: float = math.inf
    size: int = _EVENT_BYTES
    tokens: int = 0
    state: RecordingState = RecordingState.RUNNING
    events: list[StreamEvent] = field(default_factory=list)
    followers: list[TokenStream] = field(default_factory=list)

    def follow(self) -> TokenStream:
        """A stream of all events from the beginning. If the recording is abandoned, it has no end."""
        stream = TokenStream(self._stop)
        for event in self.events:
            stream.push(_repeated(event))
        if self.state is RecordingState.RUNNING:
            self.followers.append(stream)
        elif self.state is RecordingState.ABANDONED:
            stream.abandon()
        return stream

    def add(self, event: StreamEvent) -> None:
        """Record what the engine has produced."""
        if self.state is not RecordingState.RUNNING:
            return
        if isinstance(event, Failure) or (isinstance(event, End) and event.reason not in _COMPLETE):
            self.abandon()
            return
        self.size += _bytes_of(event)
        if self.size > self.most:
            self.abandon()
            return
        self.events.append(event)
        self.tokens += len(event.tokens) if isinstance(event, Delta) else 0
        for stream in self.followers:
            stream.push(_repeated(event))

    @property
    def is_whole(self) -> bool:
        return self.state is RecordingState.RUNNING and bool(self.events) and isinstance(self.events[-1], End)

    def complete(self) -> None:
        self.state = RecordingState.COMPLETE
        self.followers.clear()

    def abandon(self) -> None:
        """Followers generate the rest by themselves."""
        self.state = RecordingState.ABANDONED
        self.events.clear()
        for stream in self.followers:
            stream.abandon()
        self.followers.clear()

    def _stop(self, stream: TokenStream, reason: FinishReason) -> None:
        if stream in self.followers:
            self.followers.remove(stream)
        stream.push(End(self.tokens, reason, Usage(self.prompt_tokens, self.tokens)))


class ResponseCache:
    """The recordings of one worker. `clock` is monotonic, in seconds."""

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        self.stats = CacheStats()
        self._clock = clock
        self._rules: CacheRules | None = None
        self._running: dict[bytes, Recording] = {}
        self._complete: TTLCache[bytes, Recording] = TTLCache(0, 0)
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Work by this policy from now on."""
        if policy.cache == self._rules:
            return
        self._rules = policy.cache
        rules = policy.cache or CacheRules(ttl_s=0)
        self._complete = TTLCache(rules.max_mb * 1e6, rules.ttl_s, timer=self._clock, getsizeof=lambda one: one.size)

    @property
    def is_on(self) -> bool:
        return self._rules is not None

    def update(self) -> None:
        """Free what has expired."""
        self._complete.expire()

    def key_of(self, request: Request, model_version: str, job: Job) -> bytes | None:
        """None if the answer may not be shared."""
        rules = self._rules
        is_deterministic = job.sampling.temperature == 0 or request.seed is not None
        is_single = request.tool_mode is not ToolMode.KAFKA and (request.best_of or 1) == 1
        is_plain = request.cache and request.store and is_single
        if rules is None or not is_deterministic or not is_plain or job.generated:
            return None
        seed = job.sampling.seed if job.sampling.temperature else 0
        rest = [getattr(job, one.name) for one in dataclasses.fields(job) if one.name not in _APART]
        sampling = dataclasses.replace(job.sampling, seed=seed)
        tools = job.tools.name if job.tools is not None else None
        parts = [_scope(rules, request), model_version, sampling, tools, rest]
        return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()

    def find(self, key: bytes) -> Recording | None:
        """The recording to follow."""
        if (recording := self._complete.get(key)) is not None:
            self.stats.hits += 1
        elif (recording := self._running.get(key)) is not None and recording.state is RecordingState.RUNNING:
            self.stats.hits += 1
            self.stats.joins += 1
        else:
            recording = None
            self.stats.misses += 1
        return recording

    @contextmanager
    def recording(self, key: bytes, request: Request, job: Job) -> Iterator[Recording]:
        """Record an answer while it is generated. It is kept if it is complete at the end."""
        recording = Recording(request.user_id, request.request_id, len(job.prompt), self._complete.maxsize)
        self._running.setdefault(key, recording)
        try:
            yield recording
        finally:
            if self._running.get(key) is recording:
                del self._running[key]
            if recording.is_whole:
                recording.complete()
                self._complete[key] = recording
            else:
                recording.abandon()

    def forget(self, user_id: str) -> None:
        """Drop what was generated for this user."""
        for key in [key for key, one in self._complete.items() if one.user_id == user_id]:
            self._complete.pop(key, None)
        for key in [key for key, one in self._running.items() if one.user_id == user_id]:
            self._running.pop(key).abandon()


def _bytes_of(event: StreamEvent) -> int:
    """About how many bytes it occupies."""
    if isinstance(event, Failure):
        return _EVENT_BYTES
    calls = event.calls
    texts = [event.text, event.reasoning, *(one.arguments for one in calls)]
    size = _EVENT_BYTES * (1 + len(calls)) + 4 * sum(map(len, texts))
    if isinstance(event, End):
        return size
    logprobs = (*event.logprobs, *event.prompt_logprobs)
    rivals = sum(len(one.top) for one in logprobs)
    return size + 36 * len(event.tokens) + _LOGPROB_BYTES * len(logprobs) + _RIVAL_BYTES * rivals


def _repeated(event: StreamEvent) -> StreamEvent:
    """The event as followers get it: no token of their prompt was computed."""
    if not isinstance(event, End):
        return event
    usage = dataclasses.replace(event.usage, cached_tokens=event.usage.prompt_tokens)
    return dataclasses.replace(event, usage=usage)


def _scope(rules: CacheRules, request: Request) -> str:
    if rules.scope == "tenant" and request.tenant:
        return f"tenant {request.tenant}"
    return f"user {request.user_id}"
