"""One answer as its reader sees it: its events in the log, and its text so far.

An answer ends before its record on `turns` would be too large for Kafka. The record is measured as JSON, whatever
`PARLEY_WIRE_FORMAT` is, because the conversation's row holds the same texts and is always JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from aiokafka.structs import RecordMetadata

from app.delivery.accepted import Accepted
from app.delivery.resume.beside import Beside, RecordsOf
from app.delivery.resume.tokens import TokenLog
from app.wire.error import ErrorCode, shortened
from app.wire.event import (
    DEGRADED,
    PLAN,
    RESUMED,
    ErrorInfo,
    EventType,
    Logprob,
    Notice,
    Plan,
    TokenEvent,
)
from app.wire.json_codec import json_bytes
from app.wire.record_size import MAX_TURN_BYTES
from app.wire.tools import ToolCall, ToolCallDelta
from models.interface.chat import ModelCall
from models.interface.generation import Delta, End, Stream, TokenLogprob, Usage
from models.prompts.builder import BuiltPrompt
from models.served.registry import ServedModel
from models.tools.parser import CallDelta
from tables.tool_calls import BREAK, NO_ROUNDS, ToolRounds

_LEAST_LOGPROB = -9999.0
_TOLD_MS = 600_000
"""When an answer wakes later than this, its tokens so far are written again."""


class AnswerLog:
    """Writes the events of one request, continuing where its former owner stopped.

    `first_at` and `ended_at` are Unix milliseconds; `gaps` are the seconds between deltas as the engine produced them.
    `repeated`: when and from which offset on it was written whole again.
    `tells_reasoning`: events keep the reasoning of the current model apart. `call_ends`: the last letter of each
    call of the current round that readers have seen grow.
    """

    def __init__(
        self,
        tokens: TokenLog,
        accepted: Accepted,
        trace_headers: tuple[tuple[str, bytes], ...],
        model: ServedModel | None,
        default: ServedModel,
    ) -> None:
        """`model` writes the answer; without one, the end names the author of the tokens so far, or the `default`."""
        former = accepted.former.answer
        self.plan = accepted.former.plan
        self._tokens = tokens
        self._accepted = accepted
        self._trace_headers = trace_headers
        self._model = model or default
        self._recovered = former.segments if former else []
        self.version = self._model.model_version
        if model is None:
            self.keep_author()
        self.token_ids = list(former.tokens) if former else []
        self._texts = [event.text or "" for event in self._recovered]
        self._reasonings = [event.reasoning or "" for event in self._recovered]
        self._ends = [event.next_index for event in self._recovered]  # the token index behind each text
        self.end: TokenEvent | None = None
        if former and former.end:
            self._add(former.end.text or "", former.position, former.end.reasoning or "")
        self._deliveries: list[asyncio.Future[RecordMetadata]] = []
        self.beside_bytes = json_bytes(self._accepted.request.question)
        self.continue_after(NO_ROUNDS)
        self.tells_reasoning = False
        self.index = former.position if former else 0
        self.first_at = self._recovered[0].timestamp if self._recovered else None
        self.ended_at = former.end.timestamp if former and former.end else None
        self.logprobs = [one.logprob for event in self._recovered for one in event.logprobs or ()]
        self.prompt_digest: str | None = None
        self._prompt_begins_unwritten = False
        self._prompt_start: str | None = None
        self.gaps: list[float] = []
        self._wrote_at: float | None = None
        self._beside: Beside | None = None
        self.repeated: tuple[int, int] | None = None

    def go_beside(self, records_of: RecordsOf) -> None:
        """From now on these records go with each event, and with those of a former owner (beside.py)."""
        delivered = self._accepted.slept_until  # an answer falls asleep once its records are delivered
        owed = [one for one in self._recovered if (one.index or 0) >= delivered]
        owed += filter(None, [self._accepted.former.end])
        self._beside = Beside(self._tokens, self._accepted.key, records_of, owed)

    async def send_beside(self, *events: TokenEvent) -> None:
        """Send what goes with these events, and what is owed."""
        if self._beside is not None:
            self._deliveries += await self._beside.send(self._now(), *events)

    @property
    def written(self) -> Iterator[tuple[int, str, str]]:
        """Each text and reasoning with the token index behind it."""
        return zip(self._ends, self._texts, self._reasonings, strict=True)

    async def repeat(self) -> None:
        """Write again what its rows have of an answer that has slept, if readers may not have it any more: `tokens` may
        have lost its tail under another owner, and after a while a reader has let it go.
        """
        sleeper, epoch = self._accepted.sleeper, self._tokens.epoch
        if sleeper is None or (sleeper.head.epoch == epoch and self._now() - sleeper.head.told_at < _TOLD_MS):
            return
        self.repeated = self._now(), self._tokens.position
        for event in self._recovered:
            copy = msgspec.structs.replace(event, copy=True)
            delivery = await self._tokens.send(copy, self._accepted.record.key, self._trace_headers)
            self._deliveries.append(delivery)

    def write_as(self, model: ServedModel) -> None:
        """This model writes what follows."""
        self._model, self.version = model, model.model_version

    def keep_author(self) -> None:
        """The model that has written the tokens so far is not served here; unless another one goes on, the end names
        it.
        """
        if self._recovered:
            self.version = self._recovered[-1].model_version or self.version

    def inherit(self, tokens: Sequence[int]) -> None:
        """The current model writes the tokens from `from_index` on. What other models have written of the round before
        that is the beginning of its job: these tokens, in its own vocabulary.
        """
        self._begin, self._inherited = self.from_index, tuple(tokens)

    @property
    def from_index(self) -> int:
        """The token from which the current model reads its current prompt: behind the last round of calls, and behind
        what a model has written that failed.
        """
        return max(self._past_end, self.plan.from_index or 0)

    @property
    def inherited_text(self) -> str:
        """The text of the round up to the token `from_index`, where an event begins: other models have written it."""
        index = self.from_index
        if index == self._past_end:
            return ""
        text = "".join(text for text, end in zip(self._texts, self._ends, strict=True) if end <= index)
        return self._of_round(text)

    @property
    def has_other_models_text(self) -> bool:
        """Whether the current model continues what another has begun."""
        return bool(self._inherited)

    @property
    def generated(self) -> tuple[int, ...]:
        """The tokens of the current job that readers have already."""
        return (*self._inherited, *self.token_ids[self._begin :])

    @property
    def _base(self) -> int:
        """The answer's index of the current job's token 0; below 0 if the inherited text has more tokens in this
        model's vocabulary.
        """
        return self._begin - len(self._inherited)

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasonings)

    @property
    def has_mixed_text(self) -> bool:
        """Whether a worker has begun what the current model goes on with that does not tell the reasoning apart: one of
        an older version, or one whose engine cannot.
        """
        begun = [event for event in self._recovered if (event.index or 0) >= self.from_index and event.tokens]
        return bool(begun) and all(event.reasoning is None for event in begun)

    def _recovered_of_round(self) -> list[TokenEvent]:
        return [event for event in self._recovered if (event.index or 0) >= self._past_end]

    @property
    def tokens_of_round(self) -> int:
        return self.index - self._past_end

    @property
    def text_of_round(self) -> str:
        return self._of_round(self.text)

    @property
    def reasoning_of_round(self) -> str:
        return "".join(text for end, _, text in self.written if end > self._past_end).removeprefix(BREAK)

    def _of_round(self, text: str) -> str:
        return text[len(self._past_text) :].removeprefix(BREAK) if self._past_text else text

    def _add(self, text: str, end: int, reasoning: str = "") -> None:
        self._texts.append(text)
        self._ends.append(end)
        self._reasonings.append(reasoning)

    def _add_to_call(self, index: int, arguments: str) -> None:
        self.call_ends[index] = arguments[-1:] or self.call_ends.get(index, "")

    @property
    def has_open_calls(self) -> bool:
        """Whether readers have seen a call of the current round grow."""
        return bool(self.call_ends)

    def continue_after(self, rounds: ToolRounds) -> None:
        """What follows counts from the end of these rounds: indexes, calls, usage."""
        self.rounds = rounds
        self._past_end, self._past_text, self._past_calls, self._past_bytes = 0, "", 0, 0
        if rounds.rounds:
            self._past_end, self._past_text, self._past_calls = rounds.end, rounds.text, len(rounds.calls)
            self._past_bytes = len(msgspec.json.encode(rounds))
        self._begin, self._inherited = self._past_end, tuple[int, ...]()
        self.call_ends: dict[int, str] = {}
        calls = [call for event in self._recovered_of_round() for call in event.tool_call_deltas or ()]
        for call in calls:
            self._add_to_call(call.index - self._past_calls, call.arguments)
        text, reasoning = self.text_of_round, self.reasoning_of_round
        # to write before the next text
        self._break = BREAK if self._past_text and self.text == self._past_text else ""
        self._reasoning_break = BREAK if self.reasoning and not reasoning else ""
        self._used = json_bytes(text + reasoning) + sum(map(_bytes_of_call, calls))

    def keep_room(self, size: int) -> None:
        """The turn will keep so many bytes, as JSON, beside the answer and its rounds of calls."""
        self.beside_bytes = max(self.beside_bytes, size)

    def _now(self) -> int:
        return self._accepted.time_of(self._tokens.now())

    def has_room_for(self, delta: Delta) -> bool:
        """Whether a turn that ends with this text still fits into a record, with the rounds of calls before it."""
        return self._has_room(_size(delta))

    def has_room_for_calls(self, calls: Sequence[ModelCall]) -> bool:
        """Whether the answer may end in these calls; those that readers have seen grow are counted already."""
        return self.has_open_calls or self._has_room(sum(map(_bytes_of_call, calls)))

    def _has_room(self, size: int) -> bool:
        return size <= MAX_TURN_BYTES - self.beside_bytes - self._past_bytes - self._used

    async def write(self, delta: Delta) -> None:
        """Write the tokens."""
        now = time.monotonic()
        if self._wrote_at is not None:
            self.gaps.append(now - self._wrote_at)
        elif self.first_at is None:
            self.first_at = self._now()
        self._wrote_at = now
        text, reasoning = self._with_breaks(delta.text, delta.reasoning)
        event = self._event(EventType.TOKEN, self._base + delta.index, tokens=delta.tokens, text=text)
        if reasoning or (self.tells_reasoning and event.index == self._begin):
            event = msgspec.structs.replace(event, reasoning=reasoning)
        if delta.logprobs or delta.prompt_logprobs or delta.calls:
            event = self._with_more(event, delta)
        await self._send(event)
        self.index = event.next_index
        self.token_ids += delta.tokens
        if delta.logprobs:
            self.logprobs += [one.logprob for one in delta.logprobs]
        self._add(text, self.index, reasoning)
        self._used += _size(delta)
        for call in delta.calls:
            self._add_to_call(call.index, call.arguments)

    async def pause(self, stream: Stream | None = None) -> None:
        """Wait until the next tokens may be written, those of this stream at the latest when it ends."""
        await self._tokens.pause(self._deliveries[-1], stream)

    def _with_more(self, event: TokenEvent, delta: Delta) -> TokenEvent:
        """What few answers have beside their text."""
        scores = tuple(
            self._logprob(one, begins=not at and self._prompt_begins_unwritten)
            for at, one in enumerate(delta.prompt_logprobs)
        )
        return msgspec.structs.replace(
            event,
            logprobs=tuple(self._drawn(one, delta.index + at) for at, one in enumerate(delta.logprobs)) or None,
            tool_call_deltas=tuple(map(self._call_delta, delta.calls)) or None,
            prompt_logprobs=scores or None,
        )

    def _drawn(self, one: TokenLogprob, index: int) -> Logprob:
        """That of a token of the answer, whose texts joined are the answer's."""
        logprob = self._logprob(one, begins=index == 0)
        return msgspec.structs.replace(logprob, text="") if one.token in self._model.unwritten else logprob

    def _logprob(self, one: TokenLogprob, *, begins: bool) -> Logprob:
        text_of = self._model.text_of
        rivals = tuple(Logprob(token, text_of(token, begins=begins), _finite(logprob)) for token, logprob in one.top)
        return Logprob(one.token, text_of(one.token, begins=begins), _finite(one.logprob), rivals, one.rank)

    def _call_delta(self, delta: CallDelta) -> ToolCallDelta:
        began = {"id": self.call_id(delta.index), "name": delta.name} if delta.name else {}
        return ToolCallDelta(index=self._past_calls + delta.index, arguments=delta.arguments, **began)

    def call_id(self, index: int) -> str:
        """The id of a call of the current round; the same for an answer that is resumed elsewhere."""
        return call_id(*self._accepted.key, self._past_calls + index)

    def _with_breaks(self, text: str, reasoning: str) -> tuple[str, str]:
        if text:
            text, self._break = self._break + text, ""
        if reasoning:
            reasoning, self._reasoning_break = self._reasoning_break + reasoning, ""
        return text, reasoning

    def show_start(self, prompt: BuiltPrompt) -> None:
        """Give readers the text of the prompt's first token, which has no log probability, if they want the others."""
        request = self._accepted.request
        if request.prompt_logprobs is None or self.index or not prompt.ids:
            return
        first = prompt.ids[0]
        self._prompt_begins_unwritten = first in self._model.unwritten
        if request.is_raw:
            self._prompt_start = self._model.text_of(first, begins=True)

    async def decide(self, plan: Plan) -> None:
        """Put these decisions in force, and write them if they are new. Tokens that depend on them follow in the same
        partition, and Kafka keeps the order, so this does not wait for the delivery.
        """
        if plan == self.plan:
            return
        before, self.plan = self.plan, plan
        message = f"{plan.model or 'the default model'} answers"
        await self._send(self._notice(PLAN, message, msgspec.to_builtins(plan)))
        if plan.notice is not None and (plan.notice, plan.model) != (before.notice, before.model):
            why = "this worker is under load" if plan.notice == DEGRADED else "a model has failed"
            await self.notice(plan.notice, f"{why}; {plan.model} answers", {"model": plan.model, "route": plan.route})

    async def notice(self, code: str, message: str, details: dict[str, Any]) -> None:
        """Show readers something that nothing depends on."""
        await self._send(self._notice(code, message, details))

    async def resumed(self, lost: str = "a worker", *, redraws: bool = False) -> None:
        """`redraws`: what follows are other words than the answer would have had."""
        how = ", with other words than it would have had" if redraws else ""
        details = {"redraws": True} if redraws else None
        await self._send(self._notice(RESUMED, f"{lost} was lost; the answer continues{how}", details))

    async def delivered(self) -> None:
        """Wait for all deliveries."""
        await self._tokens.delivered(self._deliveries)

    def _notice(self, code: str, message: str, details: dict[str, Any] | None = None) -> TokenEvent:
        return self._event(EventType.NOTICE, self.index, notice=Notice(code, message, details))

    async def done(self, end: End) -> TokenEvent:
        """Write the end of the answer, which is that of the current round."""
        text, reasoning = self._with_breaks(end.text, end.reasoning)
        self._add(text, self.index, reasoning)
        past, usage = self.rounds.usage, end.usage
        total = Usage(
            past.prompt_tokens + usage.prompt_tokens,
            past.completion_tokens + self._completion(usage) + self.plan.other_tokens,
            past.cached_tokens + usage.cached_tokens,
        )
        event = self._event(EventType.DONE, self.index, text=text or None, finish_reason=end.reason, usage=total)
        calls = tuple(ToolCall(self.call_id(index), call.name, call.arguments) for index, call in enumerate(end.calls))
        return await self._end(msgspec.structs.replace(event, tool_calls=calls or None, reasoning=reasoning or None))

    def _completion(self, usage: Usage) -> int:
        """The tokens of the round that count: those of the model that failed, and what this one has added."""
        if not self._inherited:
            return usage.completion_tokens
        own = (self.index - self._begin) / max(1, self.index - self._base)
        return self._begin - self._past_end + round(usage.completion_tokens * own)

    async def error(self, code: ErrorCode, message: str) -> TokenEvent:
        return await self._end(self._event(EventType.ERROR, self.index, error=ErrorInfo(code, shortened(message))))

    async def _end(self, event: TokenEvent) -> TokenEvent:
        """Write the end and wait for all deliveries: the answer is whole in the log before the request is committed."""
        await self._send(event)
        self.end = event
        self.ended_at = self._now()
        await self.delivered()
        return event

    def _event(self, event_type: EventType, index: int, **fields: Any) -> TokenEvent:
        """With what only the first events of an answer or of a model have."""
        if index == self._begin:
            fields["prompt_digest"] = self.prompt_digest
        if index == 0 and event_type in {EventType.TOKEN, EventType.DONE}:
            fields["prompt_start"] = self._prompt_start
        return self._accepted.event(event_type, index, model_version=self.version, **fields)

    async def _send(self, event: TokenEvent) -> None:
        self._deliveries.append(await self._tokens.send(event, self._accepted.record.key, self._trace_headers))
        await self.send_beside(event)


def call_id(user_id: str, request_id: str, index: int) -> str:
    """The id of call `index` of an answer."""
    name = f"{user_id}/{request_id}/{index}"
    return f"call_{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}"


def _finite(logprob: float) -> float:
    """JSON has no infinity: what a constraint excludes gets OpenAI's value for that. Raises `ValueError` for NaN, after
    which nothing of the model's figures can be believed.
    """
    if math.isnan(logprob):
        raise ValueError("the model gives a log probability that is no number")
    return max(_LEAST_LOGPROB, min(0.0, logprob)) if math.isinf(logprob) else logprob


def _size(delta: Delta) -> int:
    """Bytes that the delta adds to a turn; a call's arguments are in `tool_calls`."""
    size = json_bytes(delta.text)
    if delta.reasoning:
        size += json_bytes(delta.reasoning)
    return size + sum(map(_bytes_of_call, delta.calls)) if delta.calls else size


def _bytes_of_call(call: CallDelta | ToolCallDelta | ModelCall) -> int:
    """Its name needs some room."""
    return json_bytes(call.arguments) + 256 * bool(call.name)
