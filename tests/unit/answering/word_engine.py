"""An engine that writes words, and a model with it. A test decides what it writes, and where it fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import cast

from models.interface.generation import (
    End,
    EngineStats,
    Failure,
    FinishReason,
    GenerationDefaults,
    Job,
    Stream,
    StreamEvent,
    TokenLogprob,
    Usage,
)
from models.served.paced import CONTEXT, BytePrompts, beginning, called, delta_of, reasoned, text_of, word
from models.served.registry import ServedModel

_ROUNDS = 2
"""In so many rounds the engine calls tools, if it has some."""

Before = Callable[[Job, int], StreamEvent | None]
Says = Callable[[Job], Sequence[str]]


class _Words:
    """A stream that `before` each token may fail, end or stop the request."""

    def __init__(self, engine: Words, job: Job) -> None:
        self._engine = engine
        self._job = job
        self._reason: FinishReason | None = None
        self.admitted_at = 1.0
        self.ended = False

    def on_end(self, call: Callable[[], None]) -> None:
        """It makes each event when it is read."""

    def cancel(self, reason: FinishReason = FinishReason.CANCELLED) -> None:
        self._reason = self._reason or reason
        self._engine.open.discard(self)

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        job, engine, index = self._job, self._engine, len(self._job.generated)
        said = None if engine.says is None else engine.says(job)
        calls = job.tools is not None and bytes(job.prompt).count(b"\ntool: ") < _ROUNDS
        most = (job.max_tokens + 1) // 2 if calls else job.max_tokens
        most = most if said is None else min(most, len(said))
        while index < most:
            await asyncio.sleep(0)
            event = engine.before(job, index)
            await asyncio.sleep(0)
            if self._reason is not None:
                yield self._end(index, self._reason)
                return
            if event is not None:
                self._engine.open.discard(self)
                yield event
                return
            token, text = engine.word(job, index) if said is None else (index, said[index])
            scores = () if job.sampling.logprobs is None else (_score(job, token),)
            delta = delta_of(index, [(token, text)], reasoned(job, most))
            self.ended = index + 1 >= most
            yield replace(delta, logprobs=scores, redraws=index == engine.redraws_at)
            index += 1
        self._engine.open.discard(self)
        if calls:
            usage = Usage(len(job.prompt), index)
            yield End(index, FinishReason.TOOL_CALLS, usage, calls=(called(job.prompt, index),))
            return
        is_cut = said is None or len(said) > job.max_tokens
        yield self._end(index, FinishReason.LENGTH if is_cut else FinishReason.STOP)

    def _end(self, index: int, reason: FinishReason) -> End:
        return End(index, reason, Usage(len(self._job.prompt), index))


def _score(job: Job, token: int) -> TokenLogprob:
    return TokenLogprob(token, -((token + (job.sampling.seed >> 32) * 7) % 97) / 100)


class Words:
    """An engine whose token follows from the prompt, the seed and the index; or that `says` what a test wants.

    jobs: All that it got. open: Streams that have no end, and that were not cancelled. redraws_at: The token before
    which another server of its goes on with other words.
    """

    context_length = CONTEXT
    has_room = True
    stats = EngineStats()

    def __init__(self, name: str, says: Says | None, before: Before) -> None:
        self.model_version = f"{name}@1"
        self.says, self.before = says, before
        self.redraws_at: int | None = None
        self.jobs: list[Job] = []
        self.open: set[_Words] = set()

    def word(self, job: Job, index: int) -> tuple[int, str]:
        return word(job.prompt, index, f"{self.model_version}{job.sampling.seed}")

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        streams = [_Words(self, job) for job in jobs]
        self.jobs += jobs
        self.open.update(streams)
        return [*streams]

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    @property
    def prompts(self) -> list[str]:
        """The prompts that it has read."""
        return [bytes(job.prompt).decode() for job in self.jobs]


def model(name: str = "default", says: Says | None = None, before: Before = lambda _job, _index: None) -> ServedModel:
    engine = Words(name, says, before)
    names = frozenset({name, "auto"} if name == "default" else {name})
    return ServedModel(
        engine,
        BytePrompts(),
        GenerationDefaults(),
        names,
        text_of,
        has_logprobs=True,
        forms_follow_reasoning=True,
        reads=beginning,
    )


def words_of(one: ServedModel) -> Words:
    return cast(Words, one.engine)


def saying(*words: str) -> Says:
    return lambda _job: words


def failing(at: int, code: str = "engine_error", times: int = 1 << 30) -> Before:
    """Fail at the token `at`, so many times."""
    left = [times]

    def before(_job: Job, index: int) -> StreamEvent | None:
        if index != at or not left[0]:
            return None
        left[0] -= 1
        return Failure(index, code, "it broke")

    return before
