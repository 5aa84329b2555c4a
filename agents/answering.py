"""Let models write an answer: round by round of tool calls, and model by model if one fails.

    round:  serving -> prompt -> job -> stream of the engine -> token events, until the answer or the round ends
               ^                                    |
               '-- same model once more, then the next of the policy's chain <- Failure

A model that takes over in the middle continues what readers have: the text so far, as tokens of its own vocabulary, is
the beginning of its job (`Job.generated`), and its tokens get the answer's next indexes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import msgspec

from agents.candidates import Candidates
from agents.dialogue import DialogueError
from agents.jobs import UnsupportedError, job_of, prompt_of, serving_of
from agents.outcomes import memory_of
from agents.recalling import Recalling
from agents.tool_rounds import ToolCalls, ToolCallsTooLargeError
from app.delivery.batches import Batches
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.quarantine import Isolation
from app.policy.planner import Planner
from app.policy.response_cache import Recording, ResponseCache
from app.reader.answer import Answer
from app.settings import Settings
from app.wire.codes import ErrorCode
from app.wire.event import CACHED, TokenEvent
from app.wire.tools import ToolMode
from models.generation import Delta, End, Engine, Failure, FinishReason, Job, Stream, StreamEvent, Usage
from models.prompts import BuiltPrompt, PromptError, PromptTooLong
from models.registry import ModelRegistry, ServedModel
from models.structured.grammar import ConstraintError
from tables.conversations import MemoryRules
from tables.records import Conversation, Turn
from tables.tool_calls import ToolRounds

log = logging.getLogger(__name__)

# Errors that the engine reports about one request. Any other exception is a failure of the engine itself.
REQUEST_ERROR_CODES = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.PROMPT_TOO_LONG, ErrorCode.OVERLOADED, ErrorCode.MODEL_NOT_FOUND}
)


class Answering:
    def __init__(
        self,
        settings: Settings,
        servings: ModelRegistry,
        rules: MemoryRules,
        batches: Batches,
        planner: Planner,
        cache: ResponseCache,
        recalling: Recalling,
        candidates: Candidates,
    ) -> None:
        self._candidates = candidates
        self._recalling = recalling
        self._settings = settings
        self._servings = servings
        self._rules = rules
        self._batches = batches
        self._planner = planner
        self._cache = cache
        self._isolation = Isolation()
        self._tool_calls = ToolCalls(settings)

    async def speak(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        conversation: Conversation | None,
        answer: AnswerLog,
        serving: ServedModel | None,
    ) -> TokenEvent:
        """Write the answer, or the error that it ends with; returns its last event."""
        if inflight.stop is not None:
            return await self._stopped(answer, inflight.stop)
        if serving is None:
            return await self._nobody(inflight, answer)
        memory = memory_of(inflight, conversation, self._rules)
        inflight.plan = self._recalling.plan(partition, inflight, memory)
        inflight.memory = memory
        inflight.recalled = bool(memory or inflight.plan.recalled)
        if inflight.plan != inflight.logged:
            await answer.plan(inflight.plan)
            await answer.show(inflight.plan)
        is_resumed = inflight.recovered is not None and bool(inflight.recovered.segments)
        _pass(inflight, answer, inflight.made.until(answer.index))
        answer.continue_as(serving, inflight.begin)
        while True:
            if inflight.rounds == inflight.made and inflight.made.missing:
                stopped_by = await self._tool_calls.wait(partition, inflight, answer)
                if stopped_by is not None:
                    return await self._stopped(answer, stopped_by)
            end = await self._round(partition, inflight, memory, answer, is_resumed=is_resumed)
            if isinstance(end, TokenEvent):
                return end
            is_resumed = False
            if inflight.rounds != inflight.made:  # a round that `tokens` has lost is written again; its calls are made
                passed = inflight.made.until(answer.index)
                if answer.index != passed.end:
                    return await answer.done(FinishReason.PARTIAL, end.usage)
                _pass(inflight, answer, passed)
                continue
            try:
                await self._tool_calls.ask(partition, inflight, answer, end)
            except ToolCallsTooLargeError:
                return await answer.done(FinishReason.LENGTH, end.usage)
            finally:
                inflight.has_begun()

    async def _round(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        memory: tuple[Turn, ...],
        answer: AnswerLog,
        *,
        is_resumed: bool,
    ) -> TokenEvent | End:
        """Let a model read its prompt and write. Returns the last event of the answer, or the calls of the round if
        other programs run them.
        """
        while (serving := serving_of(inflight, self._servings)) is not None:
            end = await self._try(partition, inflight, memory, answer, serving, is_resumed=is_resumed)
            if isinstance(end, Failure):
                if not await self._may_try_again(inflight, answer, end):
                    return await answer.error(_code_of(end), end.message)
            elif isinstance(end, End) and end.reason is FinishReason.PARTIAL:
                if not await self._is_followed(inflight, answer, "its server cannot continue the answer"):
                    return await answer.done(end.reason, end.usage, end.text)
            else:
                return end
            is_resumed = False
        return await self._nobody(inflight, answer)

    async def _try(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        memory: tuple[Turn, ...],
        answer: AnswerLog,
        serving: ServedModel,
        *,
        is_resumed: bool,
    ) -> TokenEvent | End | Failure:
        """Let this model read and write, or say why it failed."""
        try:
            prompt = await prompt_of(inflight, memory, serving, self._settings)
            job = job_of(inflight, prompt, serving, self._settings, answer.generated, answer.logprobs)
        except PromptTooLong as error:
            return await answer.error(ErrorCode.PROMPT_TOO_LONG, str(error))
        except (PromptError, UnsupportedError, DialogueError, ConstraintError) as error:
            return await answer.error(ErrorCode.INVALID_REQUEST, str(error))
        answer.prompt_digest = prompt.digest
        if is_resumed and inflight.recovered is not None:
            if not _same(inflight, inflight.recovered, serving, prompt):
                return await answer.done(FinishReason.PARTIAL, Usage(len(prompt.ids), answer.tokens_of_round))
            await answer.resumed()
        if job.max_tokens < 1 or (answer.inherits and job.max_tokens <= len(job.generated)):
            return await answer.done(FinishReason.LENGTH, Usage(len(prompt.ids), 0))
        return await self._answer_to(partition, inflight, answer, serving, job)

    async def _answer_to(
        self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog, serving: ServedModel, job: Job
    ) -> TokenEvent | End | Failure:
        """Repeat what another request has said, or generate."""
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
        """Say what another request has said; None if that broke off."""
        if inflight.plan.cached is None:
            inflight.plan = msgspec.structs.replace(inflight.plan, cached=found.request_id)
            await answer.plan(inflight.plan)
            message = f"the answer to the same request {found.request_id} is repeated"
            await answer.notice(CACHED, message, {"request_id": found.request_id})
        stream = found.follow()
        inflight.on_stop = stream.cancel
        if inflight.stop is not None:
            stream.cancel(inflight.stop)
        begin = answer.index
        try:
            return await self._read(inflight, answer, job, stream)
        finally:
            self._cache.stats.saved_tokens += len(job.prompt) + answer.index - begin
            inflight.on_stop = None
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
        if not inflight.replayed:
            return await self._generate(partition, inflight, answer, engine, job, recording)
        inflight.has_begun()
        beginning = await self._isolation.enter(inflight.attempt + 1)
        try:
            inflight.attempt += 1
            partition.begun[inflight.key] = inflight.attempt
            await answer.attempt(inflight.attempt)
            end = await self._generate(partition, inflight, answer, engine, job, recording, beginning.leave)
        except BaseException:
            beginning.leave()
            raise
        if isinstance(end, End):
            inflight.beginning = beginning  # a round of calls is progress once it is committed
        else:
            beginning.leave()
        if isinstance(end, Failure):
            inflight.attempt -= 1  # the worker has survived it
        return end

    async def _generate(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        answer: AnswerLog,
        engine: Engine,
        job: Job,
        recording: Recording | None,
        on_token: Callable[[], None] = lambda: None,
    ) -> TokenEvent | End | Failure:
        def observed(event: StreamEvent) -> None:
            if isinstance(event, Delta) and not answer.index:
                self._planner.begun(inflight)
            if recording is not None:
                recording.add(event)

        if (inflight.request.best_of or 1) > 1 and inflight.plan.chosen is None and not answer.index:
            return await self._best_of(partition, inflight, answer, engine, job, observed)
        async with self._batches.stream(partition.number, engine, job, inflight) as stream:
            end = await self._read(inflight, answer, job, stream, observed, on_token)
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
        count = inflight.request.best_of or 1
        if job.sampling.logprobs is None:
            silent = dataclasses.replace(job.sampling, logprobs=0)
            chosen = await self._candidates.choose(
                partition, inflight, engine, dataclasses.replace(job, sampling=silent), count
            )
        else:
            chosen = await self._candidates.choose(partition, inflight, engine, job, count)
        if isinstance(chosen, Failure):
            return chosen
        if isinstance(chosen, FinishReason):
            return await self._stopped(answer, chosen)
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
        on_token: Callable[[], None] = lambda: None,
    ) -> TokenEvent | End | Failure | None:
        """Say what comes from the stream; None if it stops without an end."""
        async for event in stream:
            observed(event)
            match event:
                case Delta() if not answer.has_room_for(event):
                    return await answer.done(FinishReason.LENGTH, Usage(len(job.prompt), answer.tokens_of_round))
                case Delta():
                    await answer.say(event)
                    on_token()
                case End(reason=FinishReason.DEADLINE):
                    return await self._stopped(answer, FinishReason.DEADLINE, event)
                case End() if _goes_on(inflight, event):
                    return event
                case End():
                    return await answer.done(event.reason, event.usage, event.text, event.calls)
                case Failure():
                    return event
        return None

    async def _may_try_again(self, inflight: InFlightRequest, answer: AnswerLog, failure: Failure) -> bool:
        """After a failure, the same model tries once more, from the last token on; then the next one of the policy's
        chain. False if the answer ends with the failure.
        """
        code = _code_of(failure)
        if inflight.stop is not None or code not in {ErrorCode.ENGINE_ERROR, ErrorCode.OVERLOADED}:
            return False
        if code is ErrorCode.ENGINE_ERROR and not inflight.retried:
            inflight.retried = True
            log.warning("request %s is tried again after %s", inflight.key, code)
            return True
        self._planner.failed(inflight)
        return await self._is_followed(inflight, answer, code)

    async def _is_followed(self, inflight: InFlightRequest, answer: AnswerLog, why: str) -> bool:
        """Hand the answer to the next model of the policy's chain; False if there is none. A call that is half written
        cannot be handed over, because calls are no text.
        """
        plan = None if answer.has_open_calls else self._planner.next(inflight, at=answer.index)
        if plan is None:
            return False
        inflight.plan, inflight.retried = plan, False
        log.warning(
            "request %s: model %s answers from token %s on, after %s", inflight.key, plan.model, answer.index, why
        )
        if (serving := serving_of(inflight, self._servings)) is not None:
            answer.continue_as(serving, inflight.begin)
        await answer.plan(plan)
        await answer.show(plan)
        return True

    async def _nobody(self, inflight: InFlightRequest, answer: AnswerLog) -> TokenEvent:
        """No model has that name. If the model that began the answer is gone, the tokens that it wrote are kept."""
        if inflight.recovered is not None and inflight.recovered.segments:
            return await answer.done(FinishReason.PARTIAL, Usage(0, answer.tokens_of_round))
        return await answer.error(ErrorCode.MODEL_NOT_FOUND, f"this worker serves {', '.join(self._servings.names)}")

    async def _stopped(self, answer: AnswerLog, reason: FinishReason, end: End | None = None) -> TokenEvent:
        """End a request that was cancelled or is late; a deadline that passes before the first token is an error."""
        if reason is FinishReason.DEADLINE and answer.index == 0:
            return await answer.error(ErrorCode.DEADLINE_EXCEEDED, "the deadline passed before the answer began")
        if end is not None:
            return await answer.done(reason, end.usage, end.text)
        return await answer.done(reason, Usage(0, answer.tokens_of_round))


def _goes_on(inflight: InFlightRequest, end: End) -> bool:
    """Whether the answer may go on after this end: with the results of its calls, or with another model."""
    if end.reason is FinishReason.TOOL_CALLS:
        return inflight.request.tool_mode is ToolMode.KAFKA
    return end.reason is FinishReason.PARTIAL


def _code_of(failure: Failure) -> ErrorCode:
    return ErrorCode(failure.code) if failure.code in REQUEST_ERROR_CODES else ErrorCode.ENGINE_ERROR


def _pass(inflight: InFlightRequest, answer: AnswerLog, rounds: ToolRounds) -> None:
    inflight.rounds = rounds
    answer.continue_after(rounds)


def _same(inflight: InFlightRequest, recovered: Answer, serving: ServedModel, prompt: BuiltPrompt) -> bool:
    """Whether generating again would give the same tokens: same version of the model that has written since the last
    fallback, and same prompt as where it began, if it has said anything. False if Kafka has lost what precedes that.
    """
    if inflight.begin > recovered.position:
        return False
    written = [event for event in recovered.segments if (event.index or 0) >= (inflight.plan.from_index or 0)]
    digests = {event.prompt_digest for event in written if event.index == inflight.begin and event.tokens}
    return digests <= {prompt.digest} and (not written or written[0].model_version == serving.model_version)
