"""One answer as its reader sees it: its events in the log, and its text so far.

An answer ends before its record on `turns` would be too large for Kafka. The record is measured as JSON, whatever
`PARLEY_WIRE_FORMAT` is, because the conversation's row holds the same texts and is always JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from aiokafka.structs import RecordMetadata

from app.delivery.inflight import InFlightRequest
from app.delivery.resume.tokens import TokenLog
from app.wire.codes import ErrorCode
from app.wire.event import (
    ATTEMPT,
    DEGRADED,
    PLAN,
    RESUMED,
    ErrorInfo,
    EventType,
    Logprob,
    Notice,
    PlanDetails,
    TokenEvent,
)
from app.wire.limits import MAX_TURN_BYTES, json_bytes
from app.wire.tools import ToolCall, ToolCallDelta
from models.chat import ToolCall as ModelCall
from models.generation import Delta, FinishReason, TokenLogprob, Usage
from models.registry import ServedModel
from models.tools.parser import CallDelta
from tables.tool_calls import BREAK, ToolRounds


class AnswerLog:
    """Writes the events of one request, continuing where its former owner stopped.

    `first_at` and `ended_at` are Unix milliseconds; `gaps` are the seconds between deltas as the engine produced them.
    """

    def __init__(self, tokens: TokenLog, inflight: InFlightRequest, serving: ServedModel) -> None:
        self._tokens = tokens
        self._claim = inflight
        self.use(serving)
        self.tokens = list(inflight.recovered.tokens) if inflight.recovered else []
        self._texts = [inflight.recovered.text] if inflight.recovered else []
        self._room = MAX_TURN_BYTES - json_bytes(inflight.request.question) - json_bytes(self.text)
        self._deliveries: list[asyncio.Future[RecordMetadata]] = []
        self._rounds = inflight.made
        self._break = ""  # to write before the next text
        self.index = inflight.recovered.position if inflight.recovered else 0
        self.first_at = (
            inflight.recovered.segments[0].timestamp if inflight.recovered and inflight.recovered.segments else None
        )
        self.ended_at = inflight.recovered.end.timestamp if inflight.recovered and inflight.recovered.end else None
        self.prompt_digest: str | None = None
        self.gaps: list[float] = []
        self._spoke_at: float | None = None

    def use(self, serving: ServedModel) -> None:
        """The model that writes from here on."""
        self._model_version = serving.model_version
        self._text_of = serving.text_of

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def tokens_of_round(self) -> int:
        return self.index - self._rounds.end

    @property
    def text_of_round(self) -> str:
        return self.text[len(self._rounds.text) :].removeprefix(BREAK if self._rounds.text else "")

    def continue_after(self, rounds: ToolRounds) -> None:
        """What is said from here on counts from the end of these rounds: indexes, calls, usage."""
        self._rounds = rounds
        self._break = BREAK if rounds.text and self.text == rounds.text else ""

    def _now(self) -> int:
        return self._claim.time_of(self._tokens.now())

    def has_room_for(self, delta: Delta) -> bool:
        """Whether a turn that ends with this text still fits into a record."""
        return _size(delta) <= self._room

    async def say(self, delta: Delta) -> None:
        """Write the tokens; while the worker is busy, return with their delivery."""
        now = time.monotonic()
        if self._spoke_at is not None:
            self.gaps.append(now - self._spoke_at)
        elif self.first_at is None:
            self.first_at = self._now()
        self._spoke_at = now
        logprobs = tuple(map(self._logprob, delta.logprobs)) or None
        scores = tuple(map(self._logprob, delta.prompt_logprobs)) or None
        calls = tuple(map(self._call_delta, delta.calls)) or None
        text = self._with_break(delta.text)
        event = self._event(EventType.TOKEN, index=self._rounds.end + delta.index, tokens=delta.tokens, text=text)
        if logprobs or calls or scores:
            event = msgspec.structs.replace(event, logprobs=logprobs, tool_call_deltas=calls, prompt_logprobs=scores)
        await self._send(event)
        self.index = event.next_index
        self.tokens += delta.tokens
        self._texts.append(text)
        self._room -= _size(delta)
        if self._tokens.is_busy:
            await asyncio.shield(self._deliveries[-1])

    def _logprob(self, one: TokenLogprob) -> Logprob:
        rivals = tuple(Logprob(token, self._text_of(token), logprob) for token, logprob in one.top)
        return Logprob(one.token, self._text_of(one.token), one.logprob, rivals, one.rank)

    def _call_delta(self, delta: CallDelta) -> ToolCallDelta:
        began = {"id": self.call_id(delta.index), "name": delta.name} if delta.name else {}
        return ToolCallDelta(index=len(self._rounds.calls) + delta.index, arguments=delta.arguments, **began)

    def call_id(self, index: int) -> str:
        """The id of a call of the current round; the same for an answer that is resumed elsewhere."""
        return call_id(*self._claim.key, len(self._rounds.calls) + index)

    def _with_break(self, text: str) -> str:
        if text:
            text, self._break = self._break + text, ""
        return text

    async def plan(self, plan: PlanDetails) -> None:
        """Record the decisions about the answer. Tokens that depend on them follow in the same partition, and Kafka
        keeps the order, so this does not wait for the delivery.
        """
        message = f"{plan.model} answers" if plan.model else "the record's timestamp is ahead of the broker's clock"
        await self._send(self._notice(PLAN, message, msgspec.to_builtins(plan)))
        if plan.notice is not None:
            why = "this worker is under load" if plan.notice == DEGRADED else "a model has failed"
            message = f"{why}; {plan.model} answers"
            await self.notice(plan.notice, message, {"model": plan.model, "route": plan.route})

    async def attempt(self, number: int) -> None:
        """Record that an attempt begins, before the request can crash the worker."""
        await self._send(self._notice(ATTEMPT, "the request is tried again", {"attempt": number}))
        await self.delivered()

    async def notice(self, code: str, message: str, details: dict[str, Any]) -> None:
        """Show readers something that nothing depends on."""
        await self._send(self._notice(code, message, details))

    async def resumed(self) -> None:
        await self._send(self._notice(RESUMED, "a worker was lost; the answer continues"))

    async def delivered(self) -> None:
        """Wait for all deliveries.

        An answer and a partition that is being released may wait for them at the same time. A cancelled `gather`
        cancels what it waits for, so without the shields the timeout of one would cancel the deliveries of the other.
        """
        await asyncio.gather(*(asyncio.shield(one) for one in self._deliveries if not _is_delivered(one)))

    def _notice(self, code: str, message: str, details: dict[str, Any] | None = None) -> TokenEvent:
        return self._event(EventType.NOTICE, index=self.index, notice=Notice(code, message, details))

    async def done(
        self, reason: FinishReason, usage: Usage, text: str = "", calls: Sequence[ModelCall] = ()
    ) -> TokenEvent:
        """Write the end of the answer. `usage` is that of the current round; `text` is text that was held back for a
        stop string or a call of a tool.
        """
        text = self._with_break(text)
        self._texts.append(text)
        past = self._rounds.usage
        total = Usage(
            past.prompt_tokens + usage.prompt_tokens,
            past.completion_tokens + usage.completion_tokens,
            past.cached_tokens + usage.cached_tokens,
        )
        event = self._event(EventType.DONE, index=self.index, text=text or None, finish_reason=reason, usage=total)
        complete = tuple(ToolCall(self.call_id(index), call.name, call.arguments) for index, call in enumerate(calls))
        return await self._end(msgspec.structs.replace(event, tool_calls=complete) if complete else event)

    async def error(self, code: ErrorCode, message: str) -> TokenEvent:
        return await self._end(self._event(EventType.ERROR, index=self.index, error=ErrorInfo(code, message)))

    async def _end(self, event: TokenEvent) -> TokenEvent:
        """Write the end and wait for all deliveries: the answer is complete in the log before the request is
        committed.
        """
        await self._send(event)
        self.ended_at = self._now()
        await self.delivered()
        return event

    def _event(
        self,
        event_type: EventType,
        *,
        index: int,
        tokens: tuple[int, ...] | None = None,
        text: str | None = None,
        finish_reason: FinishReason | None = None,
        usage: Usage | None = None,
        error: ErrorInfo | None = None,
        notice: Notice | None = None,
    ) -> TokenEvent:
        request = self._claim.request
        return TokenEvent(
            type=event_type,
            request_id=request.request_id,
            user_id=request.user_id,
            conversation_id=request.conversation_id,
            index=index,
            tokens=tokens,
            text=text,
            model_version=self._model_version,
            finish_reason=finish_reason,
            usage=usage,
            error=error,
            notice=notice,
            prompt_digest=self.prompt_digest if index == self._rounds.end else None,
        )

    async def _send(self, event: TokenEvent) -> None:
        self._deliveries.append(await self._tokens.send(event, self._claim.record.key, self._claim.trace_headers))


def call_id(user_id: str, request_id: str, index: int) -> str:
    """The id of call `index` of an answer."""
    place = f"{user_id}/{request_id}/{index}"
    return f"call_{hashlib.blake2b(place.encode(), digest_size=12).hexdigest()}"


def _size(delta: Delta) -> int:
    """Bytes that the delta adds to a turn; a call's arguments are in `tool_calls`, and its name needs some room."""
    return json_bytes(delta.text) + sum(json_bytes(call.arguments) + 256 * bool(call.name) for call in delta.calls)


def _is_delivered(delivery: asyncio.Future[RecordMetadata]) -> bool:
    return delivery.done() and not delivery.cancelled() and delivery.exception() is None
