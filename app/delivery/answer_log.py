"""An answer as readers get it: its events in the log, and its text as told so far."""

from __future__ import annotations

import asyncio
import time

import msgspec
from aiokafka.structs import RecordMetadata

from app.delivery.claim import Claim
from app.delivery.tokens import TokenLog
from app.wire.codes import ErrorCode
from app.wire.event import ErrorInfo, EventType, Logprob, Notice, TokenEvent
from models.generation import Delta, FinishReason, TokenLogprob, Usage
from models.serving import Serving


class AnswerLog:
    """Writes the events of one claim, from where its former owner left off.

    `first_at` and `ended_at` are Unix milliseconds, `gaps` the seconds between its deltas as they came from the engine.
    """

    def __init__(self, tokens: TokenLog, claim: Claim, serving: Serving) -> None:
        self._tokens = tokens
        self._claim = claim
        self._model_version = serving.model_version
        self._text_of = serving.text_of
        self._texts = [claim.said.text] if claim.said else []
        self._deliveries: list[asyncio.Future[RecordMetadata]] = []
        self.index = claim.said.position if claim.said else 0
        self.first_at = claim.said.segments[0].timestamp if claim.said and claim.said.segments else None
        self.ended_at = claim.said.end.timestamp if claim.said and claim.said.end else None
        self.prompt_digest: str | None = None
        self.gaps: list[float] = []
        self._spoke_at: float | None = None

    @property
    def text(self) -> str:
        return "".join(self._texts)

    async def say(self, delta: Delta) -> None:
        now = time.monotonic()
        if self._spoke_at is not None:
            self.gaps.append(now - self._spoke_at)
        elif self.first_at is None:
            self.first_at = time.time_ns() // 1_000_000
        self._spoke_at = now
        logprobs = tuple(map(self._logprob, delta.logprobs)) or None
        event = self._event(EventType.TOKEN, index=delta.index, tokens=delta.tokens, text=delta.text)
        await self._send(msgspec.structs.replace(event, logprobs=logprobs) if logprobs else event)
        self.index = delta.index + len(delta.tokens)
        self._texts.append(delta.text)

    def _logprob(self, told: TokenLogprob) -> Logprob:
        rivals = tuple(Logprob(token, self._text_of(token), logprob) for token, logprob in told.top)
        return Logprob(told.token, self._text_of(told.token), told.logprob, rivals)

    async def note(self, code: str, message: str) -> None:
        await self._send(self._event(EventType.NOTICE, index=self.index, notice=Notice(code, message)))

    async def done(self, reason: FinishReason, usage: Usage, text: str = "") -> TokenEvent:
        """The end of the answer; `text` is what was held back for a stop string."""
        self._texts.append(text)
        return await self._end(
            self._event(EventType.DONE, index=self.index, text=text or None, finish_reason=reason, usage=usage)
        )

    async def error(self, code: ErrorCode, message: str) -> TokenEvent:
        return await self._end(self._event(EventType.ERROR, index=self.index, error=ErrorInfo(code, message)))

    async def _end(self, event: TokenEvent) -> TokenEvent:
        """Send the end and see the whole answer delivered: it is complete in the log before the request is finished."""
        await self._send(event)
        self.ended_at = time.time_ns() // 1_000_000
        await asyncio.gather(*self._deliveries)
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
            prompt_digest=self.prompt_digest if index == 0 else None,
        )

    async def _send(self, event: TokenEvent) -> None:
        self._deliveries.append(await self._tokens.send(event, self._claim.record.key, self._claim.carried))
