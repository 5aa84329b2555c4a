"""One answer, from its plan to its commit.

1. Decide: the stages add to the plan. What a former owner has decided stands.
2. Read the conversation, choose what stands in the prompt, and write the plan, in one step.
3. Round: prompt -> job -> events -> what readers get. Stages repeat it: with results of tools, or with another model.
4. End: write how the answer ends. What it leaves behind (kept.py) is committed by containment.py, in one transaction.

A model that fails is tried once more (`Retrying`), from the last token on, with the same seed. What comes after that,
another model, is for the routes (app/features/routing), whose stage stands around this one. A request whose model is
not served ends with an error that names those that are; an answer whose model has gone keeps the tokens that it has.

A model that takes over in the middle continues what readers have: the text so far, as tokens of its own vocabulary, is
the beginning of its job (`Job.generated`), and its tokens get the answer's next indexes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

import msgspec

from app.answering.attempts import Attempting
from app.answering.batches import Batches
from app.answering.dialogue import DialogueError, kept_bytes
from app.answering.job import UnsupportedError, job_of, prompt_of
from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Generate, Round, Stage, Switch, around, parts
from app.delivery.accepted import NEW, Former
from app.delivery.inflight import InFlight
from app.delivery.partition import Partition
from app.delivery.resume.quarantine import Isolation
from app.delivery.resume.tokens import EventTooLargeError
from app.process.off_loop import INLINE
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.event import FILTERED, IGNORED, OUTSIDE, Plan, TokenEvent
from app.wire.record_size import MAX_KEPT_BYTES
from app.wire.request import Request
from models.files.checkpoint import is_folder
from models.interface.generation import ConstraintError, Delta, End, Failure, FinishReason, Job, StreamEvent, Usage
from models.prompts.builder import BuiltPrompt, PromptError, PromptTooLong
from models.served.registry import ModelRegistry, ServedModel
from models.text.reasoning import Reasoning
from tables.conversations import MemoryRules

log = logging.getLogger(__name__)

# Errors that an engine reports about one request. Any other code is a failure of the engine itself.
_OF_REQUESTS = frozenset(
    {ErrorCode.INVALID_REQUEST, ErrorCode.PROMPT_TOO_LONG, ErrorCode.OVERLOADED, ErrorCode.MODEL_NOT_FOUND}
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What all answers of a worker share; `features` in the order of their stages (app/features/order.py).

    isolation: Of suspects, replayed requests that have been lost with a worker before.
    """

    settings: Settings
    models: ModelRegistry
    rules: MemoryRules
    batches: Batches
    features: Switch
    isolation: Isolation = field(default_factory=Isolation)


class Answering:
    """One request on its way through the stages."""

    def __init__(self, pipeline: Pipeline, partition: Partition, inflight: InFlight) -> None:
        run = Run(pipeline.settings, pipeline.models, pipeline.rules, pipeline.batches, partition, inflight)
        self.run = run
        self.stages = pipeline.features.stages(run)
        self._isolation = pipeline.isolation
        self._is_fresh = not run.accepted.former.is_replayed
        if not self._is_fresh:
            self.stages = (Attempting(run, pipeline.isolation), *self.stages)
        run.sees = parts(self.stages, "see")
        inflight.timeline.started = run.accepted.time_of(run.ownership.clock.now()) * 1_000_000
        self._resumes = run.accepted.former.has_begun and not run.accepted.is_waking

    async def to_its_end(self) -> TokenEvent:
        """Let models write the answer, or the error that it ends with; returns its last event."""
        if (end := self.run.accepted.former.end) is not None:
            await self.run.answer.send_beside()
            await self.run.answer.delivered()
            return end
        if self.run.accepted.sleeper is not None:
            await self.run.answer.repeat()
        try:
            await self._decide()
            return await self._end(await around(self.stages, "round", self._round)())
        except Over as over:
            return await self._end(over.end)
        except RequestRefused as refused:
            return await self.run.answer.error(refused.code, str(refused))

    async def _decide(self) -> None:
        former, answer = self.run.accepted.former, self.run.answer
        if (vain := self.run.accepted.ignored) and former.answer is None:
            message = f"{', '.join(vain)}: no field of a request, so it has no effect"
            await answer.notice(IGNORED, message, {"fields": [*vain]})
        if self._is_fresh:
            self.run.check()
            await self._pass_suspect()
        undecided = self.stages if former is NEW else [one for one in self.stages if not one.is_decided(former)]
        plan = await around(undecided, "decide", _decided)(former.plan)
        self.run.check()  # a plan that was made for a request that is stopped is dropped
        self.run.read_conversation()  # from here on nothing is awaited: no erasure passes
        if (model := self.run.model_by(plan)) is not None:
            answer.write_as(model)
        size = kept_bytes(self.run.accepted, self.run.memory, plan)
        if size > MAX_KEPT_BYTES and former.answer is None:
            raise RequestRefused(ErrorCode.PROMPT_TOO_LONG, _too_long(size))
        answer.keep_room(size)
        for read in parts(self.stages, "read"):
            plan = read(plan, self.run.memory)
        self.run.reads_past = bool(self.run.memory or plan.recalled)
        await self.run.replan(plan)
        if answer.rounds.rounds:
            answer.continue_after(answer.rounds.until(answer.index))

    async def _pass_suspect(self) -> None:
        if self._is_fresh and self._isolation.is_alone:
            await self._isolation.pass_suspect()

    async def _round(self) -> Ending:
        """One model reads its prompt and writes."""
        model, answer = self.run.model(), self.run.answer
        assert model is not None, "`Retrying` has checked it"
        answer.write_as(model)
        prompt, job = await self._job(model)
        answer.prompt_digest, answer.tells_reasoning = prompt.digest, job.reasoning is not None
        resumes, self._resumes = self._resumes and answer.index == self.run.accepted.former.position, False
        if resumes:
            if not self._is_same(model, prompt):
                raise Over(self.run.ended_by(FinishReason.PARTIAL, len(prompt.ids)))
            await answer.resumed(redraws=model.redraws and not job.sampling.is_determined)
        answer.show_start(prompt)
        if job.max_tokens < 1 or (answer.has_other_models_text and job.max_tokens <= len(job.generated)):
            raise Over(End(answer.index, FinishReason.LENGTH, Usage(len(prompt.ids), len(job.generated))))
        async with aclosing(around(self.stages, "generate", self._engine(model))(job)) as events:
            async for event in events:
                if not isinstance(event, Delta):
                    return event
                await self._write(event, len(prompt.ids))
                await self.run.pause()
        raise RequestRefused(ErrorCode.ENGINE_ERROR, "the engine stopped without finishing the answer")

    async def _write(self, delta: Delta, prompt_tokens: int) -> None:
        """Write the tokens, or raise `Over` if no record can hold them."""
        if not self.run.answer.has_room_for(delta):
            raise Over(self.run.ended_by(FinishReason.LENGTH, prompt_tokens))
        if delta.redraws:
            await self.run.answer.resumed("the model's server", redraws=True)
        try:
            await self.run.answer.write(delta)
        except EventTooLargeError as error:
            log.warning("request %s ends early: %s", self.run.key, error)
            raise Over(self.run.ended_by(FinishReason.LENGTH, prompt_tokens)) from None

    async def _job(self, model: ServedModel) -> tuple[BuiltPrompt, Job]:
        answer, dialogue = self.run.answer, await self.run.visible_dialogue()
        try:
            prompt = await prompt_of(dialogue, model, self.run.settings, self.run.accepted.at)
            answer.inherit(await _ids_of(dialogue.written, prompt.reasoning, model))
            if answer.has_mixed_text:
                prompt = dataclasses.replace(prompt, reasoning=None)
            job = job_of(dialogue, prompt, model, self.run.settings, answer.generated, answer.logprobs)
            return prompt, dataclasses.replace(job, trace=self.run.inflight.trace_headers)
        except PromptTooLong as error:
            raise RequestRefused(ErrorCode.PROMPT_TOO_LONG, str(error)) from None
        except (PromptError, UnsupportedError, DialogueError, ConstraintError) as error:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, str(error)) from None

    def _engine(self, model: ServedModel) -> Generate:
        """The innermost ring: the engine's own events, until the request is stopped."""

        async def generate(job: Job) -> AsyncGenerator[StreamEvent, None]:
            await self._pass_suspect()
            async with self.run.batches.stream(
                self.run.partition.number, model.engine, job, self.run.inflight
            ) as stream:
                with self.run.reading(stream):
                    async for event in stream:
                        yield event

        return generate

    def _is_same(self, model: ServedModel, prompt: BuiltPrompt) -> bool:
        """Whether generating again would give the same tokens: same version of the model that has written since the
        last fallback, and same prompt as where it began, if it has written anything. False if Kafka has lost what
        precedes that.
        """
        former, answer = self.run.accepted.former, self.run.answer
        if answer.from_index > former.position:
            return False
        written = former.written_from(answer.plan.from_index or 0)
        digests = {one.prompt_digest for one in written if one.index == answer.from_index and one.tokens}
        return digests <= {prompt.digest} and (not written or written[0].model_version == model.model_version)

    async def _end(self, end: Ending) -> TokenEvent:
        """Write how the answer ends: the one place that does, but for what is refused."""
        answer = self.run.answer
        if isinstance(end, Failure):
            return await answer.error(code_of(end), end.message)
        if self.run.inflight.before_end is not None:
            end = await self.run.inflight.before_end(self.run, end)
        if end.reason is FinishReason.DEADLINE and answer.index == 0:  # an error, which has no usage
            self.run.spent += end.usage.prompt_tokens + end.usage.completion_tokens
            return await answer.error(ErrorCode.DEADLINE_EXCEEDED, "the deadline passed before the answer began")
        if end.reason is FinishReason.FILTERED:
            category = answer.plan.filtered
            message = f"the guard of this service ends the answer: {category}"
            if category is None:
                category, message = OUTSIDE, "the content filter of the model's server ends the answer"
            await answer.notice(FILTERED, message, {"category": category})
        if not answer.has_room_for_calls(end.calls):
            return await answer.done(dataclasses.replace(end, reason=FinishReason.LENGTH, calls=()))
        return await answer.done(end)


async def _decided(plan: Plan) -> Plan:
    return plan


async def _ids_of(text: str, begins: Reasoning | None, model: ServedModel) -> Sequence[int]:
    if not text:
        return ()
    ids_of = partial(model.prompts.ids_of, text, begins)
    return ids_of() if len(text) <= INLINE else await asyncio.to_thread(ids_of)


def code_of(failure: Failure) -> ErrorCode:
    """The error that a sender gets for what the engine reports."""
    return ErrorCode(failure.code) if failure.code in _OF_REQUESTS else ErrorCode.ENGINE_ERROR


def _too_long(size: int) -> str:
    return (
        f"the turn has {size} bytes as JSON with its context, calls, results and private values, and a record has room "
        f"for {MAX_KEPT_BYTES}; send less, or begin another turn"
    )


MayName = Callable[[str, ServedModel], bool]


def has_model(former: Former, models: ModelRegistry) -> bool:
    """Whether a former owner has decided which model answers, and it is served here, or has begun to answer."""
    is_served = former.plan.model is None or models.find(former.plan.model) is not None
    return former.has_begun or (former.plan.is_made and is_served)


class Retry(Feature):
    """`may_name` says whether requests of a tenant may name a model; errors name no others."""

    def __init__(self, models: ModelRegistry, may_name: MayName = lambda _tenant, _model: True) -> None:
        self.models, self._may_name = models, may_name

    def stage(self, run: Run) -> Stage:
        return Retrying(run, self)

    def not_served(self, plan: Plan, request: Request) -> RequestRefused:
        """No model has the name that was asked for. A model that is named by its folder is offered as `default`."""
        name, tenant = plan.model or request.model, request.tenant or ""
        usable = (one for one in self.models if self._may_name(tenant, one))
        names = {name for one in usable for name in one.names if not is_folder(name)}
        offered = ", ".join(sorted(names)) or "none that this tenant may name"
        return RequestRefused(ErrorCode.MODEL_NOT_FOUND, f"model: there is no {name!r}; there are: {offered}")


class Retrying(Stage):
    """`_retried`: the version of the model that has had its second try."""

    def __init__(self, run: Run, retry: Retry) -> None:
        super().__init__(run)
        self._retry = retry
        self._retried: str | None = None

    def is_decided(self, former: Former) -> bool:
        return has_model(former, self._retry.models)

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        accepted = self.run.accepted
        if plan.at is None and accepted.at < accepted.record.timestamp:
            plan = msgspec.structs.replace(plan, at=accepted.at)
        served = self.run.model_by(plan)
        if served is None:
            raise self._retry.not_served(plan, accepted.request)
        try:
            return await then(plan)
        except RequestRefused:  # its error names the model that would have answered
            self.run.answer.write_as(served)
            raise

    async def round(self, then: Round) -> Ending:
        while True:
            model = self.run.model()
            if model is None:
                if self.run.answer.index or self.run.answer.rounds.rounds:  # the tokens that it wrote are kept
                    raise Over(self.run.ended_by(FinishReason.PARTIAL))
                raise self._retry.not_served(self.run.answer.plan, self.run.accepted.request)
            end = await then()
            if not isinstance(end, Failure) or not self._tries_again(end, model):
                return end

    def _tries_again(self, failure: Failure, model: ServedModel) -> bool:
        is_its_own = code_of(failure) is ErrorCode.ENGINE_ERROR
        if not is_its_own or self._retried == model.model_version or self.run.inflight.stop.reason is not None:
            return False
        self._retried = model.model_version
        log.warning("request %s is tried again after %s", self.run.key, ErrorCode.ENGINE_ERROR)
        return True
