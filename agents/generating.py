"""Write what one job yields: a repeated answer, the best of several candidates, or what the engine generates.

    in the response cache:  follow the recording; if that breaks off, generate the rest, and charge for the whole
    else:                   attempt -> `best_of`: candidates -> the choice -> the best one
                                    -> else: the engine's stream -> token events, and a recording for the cache

Attempts to answer a record that was in the log before this ownership are counted (resume/quarantine.py): the first
begins before anything is decided, and further ones here, when a model has failed or a round of calls is over.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from itertools import chain

import msgspec

from agents.candidates import Candidates, NoChoice
from agents.decisions import Decisions
from agents.dialogue import beginning_of
from agents.off_loop import off_loop
from app.delivery.batches import Batches
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.attempts import Attempts
from app.delivery.resume.tokens import EventTooLargeError
from app.policy.response_cache import Recording, ResponseCache
from app.wire.error import ErrorCode
from app.wire.event import CACHED, FILTERED, TokenEvent
from app.wire.tools import ToolMode
from models.generation import Delta, End, Engine, Failure, FinishReason, Job, Stream, StreamEvent, Usage
from models.private.put_back import PutBack
from models.registry import ServedModel

log = logging.getLogger(__name__)


class Generating:
    """Its methods return the last event of the answer, or an `End` or `Failure` behind which the answer may go on."""

    def __init__(
        self,
        batches: Batches,
        decisions: Decisions,
        cache: ResponseCache,
        candidates: Candidates,
        attempts: Attempts,
    ) -> None:
        self._attempts = attempts
        self._decisions = decisions
        self._batches = batches
        self._cache = cache
        self._candidates = candidates

    async def answer_to(
        self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog, serving: ServedModel, job: Job
    ) -> TokenEvent | End | Failure:
        """Repeat the answer to another request, or generate."""
        key = self._cache.key_of(inflight.request, serving.model_version, job)
        if key is None:
            return await self._attempt(partition, inflight, answer, serving.engine, job)
        if (found := self._cache.find(key)) is not None:
            end = await self._repeat(inflight, answer, job, found)
            if end is not None:
                return end
            job = dataclasses.replace(job, generated=answer.generated)
            return await self._attempt(partition, inflight, answer, serving.engine, job)
        with self._cache.recording(key, inflight.request, job) as recording:
            return await self._attempt(partition, inflight, answer, serving.engine, job, recording)

    async def _repeat(
        self, inflight: InFlightRequest, answer: AnswerLog, job: Job, found: Recording
    ) -> TokenEvent | End | Failure | None:
        """Repeat the answer to another request; None if that broke off."""
        if inflight.plan.cached is None:
            inflight.plan = msgspec.structs.replace(inflight.plan, cached=found.request_id)
            await answer.plan(inflight.plan)
            message = f"the answer to the same request {found.request_id} is repeated"
            await answer.notice(CACHED, message, {"request_id": found.request_id})
        stream = found.follow()
        begin = answer.index
        try:
            with inflight.stop.listening(stream.cancel):
                return await self._read(inflight, answer, job, stream)
        finally:
            self._cache.stats.saved_tokens += len(job.prompt) + answer.index - begin
            stream.cancel()

    async def _attempt(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        answer: AnswerLog,
        engine: Engine,
        job: Job,
        recording: Recording | None = None,
    ) -> TokenEvent | End | Failure:
        await self._pays(inflight, answer)
        await self._attempts.begin(partition, inflight, answer.index)
        return await self._generate(partition, inflight, answer, engine, job, recording)

    async def _pays(self, inflight: InFlightRequest, answer: AnswerLog) -> None:
        """An answer that was to be repeated is generated after all, as a whole or the rest of it: it is not free."""
        if inflight.plan.cached is not None:
            inflight.plan = msgspec.structs.replace(inflight.plan, cached=None)
            await answer.plan(inflight.plan)

    async def _generate(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        answer: AnswerLog,
        engine: Engine,
        job: Job,
        recording: Recording | None,
    ) -> TokenEvent | End | Failure:
        def observed(event: StreamEvent) -> None:
            if isinstance(event, Delta) and not answer.index:
                self._decisions.planner.begun(inflight)
            if recording is not None:
                recording.add(event)

        if (inflight.request.best_of or 1) > 1 and inflight.plan.chosen is None and not answer.index:
            return await self._best_of(partition, inflight, answer, engine, job, observed)
        async with self._batches.stream(partition.number, engine, job, inflight) as stream:
            end = await self._read(inflight, answer, job, stream, observed)
        return end or await answer.error(ErrorCode.ENGINE_ERROR, "the engine stopped without finishing the answer")

    async def _best_of(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        answer: AnswerLog,
        engine: Engine,
        job: Job,
        observed: Callable[[StreamEvent], None],
    ) -> TokenEvent | End | Failure:
        chosen = await self._candidates.choose(partition, inflight, engine, job, inflight.request.best_of or 1)
        if isinstance(chosen, NoChoice):
            return await _unchosen(inflight, answer, chosen)
        inflight.plan = msgspec.structs.replace(inflight.plan, chosen=chosen.number, other_tokens=chosen.other_tokens)
        await answer.plan(inflight.plan)
        end = await self._read(inflight, answer, job, chosen.best.stream(), observed)
        return end or await answer.error(ErrorCode.ENGINE_ERROR, "the chosen candidate has no end")

    async def _read(
        self,
        inflight: InFlightRequest,
        answer: AnswerLog,
        job: Job,
        stream: Stream,
        observed: Callable[[StreamEvent], None] = lambda _event: None,
    ) -> TokenEvent | End | Failure | None:
        """Write what comes from the stream; None if it stops without an end."""
        gate = self._decisions.moderating.gate(inflight, answer)
        before = beginning_of(inflight.request) + answer.text_of_round
        make = partial(PutBack, inflight.mask, before, answer.call_ends, in_json=inflight.request.wants_json)
        put_back = await off_loop(len(before) if inflight.mask else 0, make)
        async for generated in stream:
            observed(generated)
            allowed = await gate.read(generated)
            if inflight.plan.filtered is not None:
                return await filtered(inflight, answer, len(job.prompt))
            for event in chain.from_iterable(map(put_back.read, allowed)):
                if not isinstance(event, Delta):
                    return await _ended(inflight, answer, event)
                if not answer.has_room_for(event):
                    return await answer.done(FinishReason.LENGTH, Usage(len(job.prompt), answer.tokens_of_round))
                try:
                    await answer.say(event)
                except EventTooLargeError as error:
                    log.warning("request %s ends early: %s", inflight.key, error)
                    return await answer.done(FinishReason.LENGTH, Usage(len(job.prompt), answer.tokens_of_round))
                inflight.has_begun()
        return None


async def _ended(inflight: InFlightRequest, answer: AnswerLog, event: End | Failure) -> TokenEvent | End | Failure:
    if isinstance(event, Failure) or _goes_on(inflight, event):
        return event
    if event.reason is FinishReason.DEADLINE:
        return await _late(inflight, answer, event)
    if not answer.has_room_for_calls(event.calls):
        return await answer.done(FinishReason.LENGTH, event.usage, event.text)
    return await answer.done(event.reason, event.usage, event.text, event.calls)


async def _unchosen(inflight: InFlightRequest, answer: AnswerLog, none: NoChoice) -> TokenEvent | Failure:
    """The candidates are thrown away; whoever asked for them pays for them."""
    if isinstance(none.why, Failure):
        inflight.spent += none.prompt_tokens + none.tokens
        return none.why
    end = End(0, none.why, Usage(none.prompt_tokens, none.tokens))
    return await (_late(inflight, answer, end) if none.why is FinishReason.DEADLINE else stopped(answer, none.why, end))


async def _late(inflight: InFlightRequest, answer: AnswerLog, end: End) -> TokenEvent:
    if answer.index == 0:  # an error, which has no usage
        inflight.spent += end.usage.prompt_tokens + end.usage.completion_tokens
    return await stopped(answer, FinishReason.DEADLINE, end)


async def stopped(answer: AnswerLog, reason: FinishReason, end: End | None = None) -> TokenEvent:
    """End a request that was cancelled or is late; a deadline that passes before the first token is an error."""
    if reason is FinishReason.DEADLINE and answer.index == 0:
        return await answer.error(ErrorCode.DEADLINE_EXCEEDED, "the deadline passed before the answer began")
    if end is not None:
        return await answer.done(reason, end.usage, end.text)
    return await answer.done(reason, Usage(0, answer.tokens_of_round))


async def filtered(inflight: InFlightRequest, answer: AnswerLog, prompt_tokens: int = 0) -> TokenEvent:
    """End an answer because of the guard. Its plan, which names the category, is in the log already."""
    category = inflight.plan.filtered
    await answer.notice(FILTERED, f"the guard of this service ends the answer: {category}", {"category": category})
    return await answer.done(FinishReason.FILTERED, Usage(prompt_tokens, answer.tokens_of_round))


def _goes_on(inflight: InFlightRequest, end: End) -> bool:
    """Whether the answer may go on after this end: with the results of its calls, or with another model."""
    if end.reason is FinishReason.TOOL_CALLS:
        return inflight.request.tool_mode is ToolMode.KAFKA
    return end.reason is FinishReason.PARTIAL
