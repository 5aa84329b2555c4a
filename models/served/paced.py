"""An engine without a model: it emits tokens at a fixed rate, and each token follows from the prompt and the index.

Load and fault tests use it where a model would only cost time. Any token that is lost, repeated or changed on the way
is detected, because every test can compute the expected token.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Unpack
from weakref import WeakSet

from models.interface.chat import ChatMessage, ModelCall, PastTurn
from models.interface.generation import (
    Delta,
    End,
    EngineStats,
    FinishReason,
    GenerationDefaults,
    Job,
    Stream,
    StreamEvent,
    Usage,
)
from models.prompts.builder import BuiltPrompt, PromptOptions, PromptTooLong, turns_and_messages
from models.prompts.chat_template import TemplateValue
from models.served.registry import ServedModel
from models.text.reasoning import Reasoning
from models.tools.forms import FORMATS

NAME = "paced"
VERSION = f"{NAME}@1"
CONTEXT = 1 << 20
_MOST_AT_ONCE = 4096


def word(prompt: Sequence[int], index: int, version: str = VERSION) -> tuple[int, str]:
    """Token `index` of the answer to `prompt`, and its text; each model has words of its own."""
    position = bytes(str((*prompt[-64:], len(prompt), index)), "ascii")
    key = b"" if version == VERSION else version.encode()[:64]
    token = int.from_bytes(hashlib.blake2b(position, digest_size=2, key=key).digest())
    return token, text_of(token)


def text_of(token: int, *, begins: bool = False) -> str:  # noqa: ARG001 - each word has its space
    return f" w{token}"


def called(prompt: Sequence[int], index: int) -> ModelCall:
    """The call in which an answer of `index` tokens ends if its job has tools."""
    return ModelCall("look_up", json.dumps({"word": word(prompt, index)[1]}))


def reasoned(job: Job, most: int) -> int:
    """How many of the answer's `most` tokens are reasoning: half of them, if any."""
    return 0 if job.reasoning is None else most // 2


def delta_of(index: int, drawn: Sequence[tuple[int, str]], reasoned: int) -> Delta:
    """The tokens and texts from `index` on; those before `reasoned` are reasoning."""
    texts, at = [text for _, text in drawn], max(0, reasoned - index)
    return Delta(index, tuple(token for token, _ in drawn), "".join(texts[at:]), reasoning="".join(texts[:at]))


def beginning(job: Job, ids: Sequence[int]) -> Delta:
    """What readers get of these tokens as the beginning of the job's answer."""
    most = job.max_tokens if job.tools is None else (job.max_tokens + 1) // 2
    return delta_of(0, [(token, text_of(token)) for token in ids], reasoned(job, most))


class PacedStream:
    def __init__(self, job: Job, pause_s: float, version: str) -> None:
        self._job = job
        self._pause_s = pause_s
        self._version = version
        self.admitted_at = time.time()
        self.ended = False
        self._reason: asyncio.Future[FinishReason] = asyncio.get_running_loop().create_future()

    def on_end(self, call: Callable[[], None]) -> None:
        """It makes each event when it is read."""

    def cancel(self, reason: FinishReason = FinishReason.CANCELLED) -> None:
        if not self._reason.done():
            self._reason.set_result(reason)

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        """A reader that falls behind gets the tokens that it missed as one `Delta`; the first token comes alone."""
        job, clock = self._job, asyncio.get_running_loop().time
        index = len(job.generated)
        due = clock() + self._pause_s
        count = 1
        # With tools, half of the allowed tokens: an answer that goes on with their results has tokens left.
        most = job.max_tokens if job.tools is None else (job.max_tokens + 1) // 2
        while index < most:
            await asyncio.wait({self._reason}, timeout=max(0.0, due - clock()))
            if self._reason.done():
                yield self._end(index, self._reason.result())
                return
            drawn = [
                word(job.prompt, index + at, self._version) for at in range(min(count, most - index, _MOST_AT_ONCE))
            ]
            self.ended = index + len(drawn) >= most
            yield delta_of(index, drawn, reasoned(job, most))
            index += len(drawn)
            due += self._pause_s * len(drawn)
            count = 1 + max(0, int((clock() - due) / self._pause_s))
        if job.tools is not None:
            usage = Usage(len(job.prompt), index)
            yield End(index, FinishReason.TOOL_CALLS, usage, calls=(called(job.prompt, index),))
            return
        yield self._end(index, FinishReason.LENGTH)

    def _end(self, index: int, reason: FinishReason) -> End:
        return End(index, reason, Usage(len(self._job.prompt), index))


class PacedEngine:
    """Implements `models.interface.generation.Engine`."""

    context_length = CONTEXT
    has_room = True

    def __init__(self, tokens_per_s: float, version: str = VERSION) -> None:
        self.model_version = version
        self._pause_s = 1 / tokens_per_s
        self._streams: WeakSet[PacedStream] = WeakSet()

    @property
    def stats(self) -> EngineStats:
        return EngineStats(running=len(self._streams))

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        streams = [PacedStream(job, self._pause_s, self.model_version) for job in jobs]
        self._streams.update(streams)
        return [*streams]

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None


class BytePrompts:
    """Prompts whose token ids are the bytes of their text."""

    tool_format = FORMATS["json"]
    tool_marker: int | None = None
    has_single_calls = False

    def build(
        self,
        system: str,
        memory: Sequence[PastTurn | tuple[str, str]] = (),
        prompt: str | None = None,
        messages: Sequence[ChatMessage] | None = None,
        **how: Unpack[PromptOptions],
    ) -> BuiltPrompt:
        turns, last = turns_and_messages(memory, prompt, messages, how)
        past = [message for turn in turns for message in turn.messages]
        lines = [f"{message.role}: {message.content}" for message in (*past, *last)]
        built = self._of("\n".join([system, *lines]).encode(), len(memory), how.get("reserve", 1))
        return replace(built, reasoning=Reasoning.OPENED) if how.get("template_values") else built

    def values_of_effort(self, effort: str) -> Mapping[str, TemplateValue]:
        return {} if effort == "none" else {"reasoning_effort": effort}

    def count(self, text: str) -> int:
        return len(text.encode())

    def ids_of(self, text: str, begins: Reasoning | None = None) -> Sequence[int]:  # noqa: ARG002 - it counts tokens
        """The engine's words are tokens; of any other text, the bytes are."""
        found = [int(one.removeprefix("w")) for one in text.split() if one[:1] == "w" and one[1:].isdecimal()]
        return found if "".join(map(text_of, found)) == text else text.encode()

    def raw(self, text: str) -> BuiltPrompt:
        return self._of(text.encode())

    def of_ids(self, ids: Sequence[int]) -> BuiltPrompt:
        return self._of(bytes(token % 256 for token in ids))

    def _of(self, ids: bytes, turns: int = 0, reserve: int = 1) -> BuiltPrompt:
        if len(ids) + reserve > CONTEXT:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens; the model takes {CONTEXT - reserve} at most")
        return BuiltPrompt(tuple(ids), turns, hashlib.blake2b(ids, digest_size=8).hexdigest())


def paced(tokens_per_s: float, name: str = NAME) -> ServedModel:
    engine = PacedEngine(tokens_per_s, f"{name}@1")
    return ServedModel(
        engine,
        BytePrompts(),
        GenerationDefaults(),
        frozenset({name}),
        text_of,
        forms_follow_reasoning=True,
        reads=beginning,
    )
