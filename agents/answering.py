"""Let models write an answer: round by round of tool calls, and model by model if one fails.

    round:  serving -> prompt -> job -> token events (generating.py), until the answer or the round ends
               ^                                    |
               '-- same model once more, then the next of the policy's chain <- Failure

A model that takes over in the middle continues what readers have: the text so far, as tokens of its own vocabulary, is
the beginning of its job (`Job.generated`), and its tokens get the answer's next indexes.
"""

from __future__ import annotations

import logging
from pathlib import Path

from agents.candidates import Candidates
from agents.decisions import Decisions
from agents.dialogue import DialogueError
from agents.generating import Generating, filtered, stopped
from agents.jobs import UnsupportedError, job_of, prompt_of, serving_of
from agents.outcomes import kept_bytes, memory_of
from agents.tool_rounds import ToolCalls, ToolCallsTooLargeError
from app.delivery.batches import Batches
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.attempts import Attempts
from app.policy.response_cache import ResponseCache
from app.policy.tenants import TenantRefusal, Tenants, charged_tenant
from app.reader.answer import Answer
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent
from app.wire.limits import MAX_KEPT_BYTES
from models.generation import ConstraintError, End, Failure, FinishReason, Usage
from models.prompts import BuiltPrompt, PromptError, PromptTooLong
from models.registry import ModelRegistry, ServedModel
from tables.conversations import MemoryRules
from tables.records import Conversation
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
        decisions: Decisions,
        cache: ResponseCache,
        candidates: Candidates,
        tenants: Tenants,
        attempts: Attempts,
    ) -> None:
        self._attempts = attempts
        self._tenants = tenants
        self._decisions = decisions
        self._settings = settings
        self._servings = servings
        self._rules = rules
        self._tool_calls = ToolCalls(settings)
        self._generating = Generating(batches, decisions, cache, candidates, attempts)

    def may_look(self, inflight: InFlightRequest) -> bool:
        """Whether models, judges and the index may see the request: not if its tenant belongs to another region or
        group. An answer that has begun goes on.
        """
        return inflight.is_admitted or self._tenants.misplaced(inflight.request) is None

    async def speak(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        conversation: Conversation | None,
        answer: AnswerLog,
        serving: ServedModel | None,
    ) -> TokenEvent:
        """Write the answer, or the error that it ends with; returns its last event."""
        if inflight.stop.reason is not None:
            return await stopped(answer, inflight.stop.reason)
        if serving is None and not inflight.is_resumed:
            return await self._not_served(inflight, answer)
        if (refusal := inflight.refusal or self._misplaced(inflight)) is not None:
            return await answer.error(refusal.code, refusal.message)
        inflight.memory = memory_of(inflight, conversation, self._rules)
        inflight.kept_bytes = kept_bytes(inflight)
        if inflight.kept_bytes > MAX_KEPT_BYTES and inflight.recovered is None:
            return await answer.error(ErrorCode.PROMPT_TOO_LONG, _too_long(inflight.kept_bytes))
        inflight.plan = self._decisions.recalling.plan(partition, inflight, inflight.memory)
        inflight.recalled = bool(inflight.memory or inflight.plan.recalled)
        if inflight.plan != inflight.logged:
            await answer.plan(inflight.plan)
            await answer.show(inflight.plan)
        if inflight.plan.filtered is not None:
            return await filtered(inflight, answer)
        _pass(inflight, answer, inflight.made.until(answer.index))
        if serving is not None:
            await answer.continue_as(serving, inflight.begin)
        return await self._rounds(partition, inflight, answer, is_resumed=inflight.is_resumed)

    async def _rounds(
        self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog, *, is_resumed: bool
    ) -> TokenEvent:
        """Round by round, until the answer ends."""
        while True:
            if (end_before := await self._before_round(partition, inflight, answer)) is not None:
                return end_before
            end = await self._round(partition, inflight, answer, is_resumed=is_resumed)
            if isinstance(end, TokenEvent):
                return end
            is_resumed = False
            if inflight.rounds != inflight.made:  # a round that `tokens` has lost is written again; its calls are made
                passed = inflight.made.until(answer.index)
                if answer.text != passed.text:  # decided otherwise since, for example another model
                    return await answer.done(FinishReason.PARTIAL, end.usage)
                _pass(inflight, answer, passed)
                continue
            try:
                await self._tool_calls.ask(partition, inflight, answer, end)
            except ToolCallsTooLargeError:
                return await answer.done(FinishReason.LENGTH, end.usage)

    async def _before_round(
        self, partition: Partition, inflight: InFlightRequest, answer: AnswerLog
    ) -> TokenEvent | None:
        """Wait for the results of the last round's calls; the end of the answer if it has none after them."""
        if inflight.rounds == inflight.made and inflight.made.missing:
            await self._attempts.interrupt(partition, inflight)
            stopped_by = await self._tool_calls.wait(partition, inflight, answer)
            if stopped_by is not None:
                return await stopped(answer, stopped_by)
        await self._decisions.masking.look_at_results(partition, inflight, answer)
        await self._decisions.moderating.look_at_results(inflight, answer)
        if inflight.stop.reason is not None and inflight.rounds.rounds:  # what follows may be without a verdict
            return await stopped(answer, inflight.stop.reason)
        return None if inflight.plan.filtered is None else await filtered(inflight, answer)

    def _misplaced(self, inflight: InFlightRequest) -> TenantRefusal | None:
        return None if inflight.is_admitted else self._tenants.misplaced(inflight.request)

    def admit(self, partition: Partition, inflight: InFlightRequest) -> None:
        """Refuse it if its tenant may not ask for this, the guard cannot read it, or too many answers of its user wait
        for tools: before anything is spent on it. What a former owner has admitted stays admitted.
        """
        serving = serving_of(inflight, self._servings)
        if inflight.is_admitted or serving is None:
            return
        if (wrong := self._decisions.masking.unsupported(inflight.request)) is not None:
            inflight.refusal = TenantRefusal(ErrorCode.INVALID_REQUEST, wrong)
            return
        if (crowd := self._tool_calls.refusal(partition, inflight)) is not None:
            inflight.refusal = TenantRefusal(ErrorCode.OVERLOADED, crowd)
            return
        names = {*serving.names, serving.model_version}
        inflight.refusal = self._tenants.refusal(inflight.request, names, is_adapter=bool(serving.adapter))
        if inflight.refusal is None:
            self._tenants.count(charged_tenant(inflight.request), inflight.record.partition, requests=1)

    async def _round(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        answer: AnswerLog,
        *,
        is_resumed: bool,
    ) -> TokenEvent | End:
        """Let a model read its prompt and write. Returns the last event of the answer, or the calls of the round if
        other programs run them.
        """
        while True:
            serving = serving_of(inflight, self._servings)
            if serving is None:
                if not await self._is_followed(inflight, answer, "its model is served no longer"):
                    return await self._not_served(inflight, answer)
                is_resumed = False
                continue
            end = await self._try(partition, inflight, answer, serving, is_resumed=is_resumed)
            if isinstance(end, Failure):
                if not await self._may_try_again(inflight, answer, end):
                    return await answer.error(_code_of(end), end.message)
            elif isinstance(end, End) and end.reason is FinishReason.PARTIAL:
                if not await self._is_followed(inflight, answer, "its server cannot continue the answer"):
                    return await answer.done(end.reason, end.usage, end.text)
            else:
                return end
            is_resumed = False

    async def _try(
        self,
        partition: Partition,
        inflight: InFlightRequest,
        answer: AnswerLog,
        serving: ServedModel,
        *,
        is_resumed: bool,
    ) -> TokenEvent | End | Failure:
        """Let this model read and write, or say why it failed."""
        try:
            prompt = await prompt_of(inflight, inflight.memory, serving, self._settings)
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
        answer.show_start(prompt)
        if job.max_tokens < 1 or (answer.inherits and job.max_tokens <= len(job.generated)):
            return await answer.done(FinishReason.LENGTH, Usage(len(prompt.ids), 0))
        return await self._generating.answer_to(partition, inflight, answer, serving, job)

    async def _may_try_again(self, inflight: InFlightRequest, answer: AnswerLog, failure: Failure) -> bool:
        """After a failure, the same model tries once more, from the last token on; then the next one of the policy's
        chain. False if the answer ends with the failure.
        """
        code = _code_of(failure)
        if inflight.stop.reason is not None or code not in {ErrorCode.ENGINE_ERROR, ErrorCode.OVERLOADED}:
            return False
        if code is ErrorCode.ENGINE_ERROR and not inflight.retried:
            inflight.retried = True
            log.warning("request %s is tried again after %s", inflight.key, code)
            return True
        self._decisions.planner.failed(inflight)
        return await self._is_followed(inflight, answer, code)

    async def _is_followed(self, inflight: InFlightRequest, answer: AnswerLog, why: str) -> bool:
        """Hand the answer to the next model of the policy's chain; False if there is none. A call that is half written
        cannot be handed over, because calls are no text.
        """
        plan = None if answer.has_open_calls else self._decisions.planner.next(inflight, at=answer.index)
        if plan is None:
            return False
        inflight.plan, inflight.retried = plan, False
        log.warning(
            "request %s: model %s answers from token %s on, after %s", inflight.key, plan.model, answer.index, why
        )
        if (serving := serving_of(inflight, self._servings)) is not None:
            await answer.continue_as(serving, inflight.begin)
        await answer.plan(plan)
        await answer.show(plan)
        return True

    async def _not_served(self, inflight: InFlightRequest, answer: AnswerLog) -> TokenEvent:
        """No model has that name. If the model that began the answer is gone, the tokens that it wrote are kept."""
        if answer.index or inflight.rounds.rounds:
            return await answer.done(FinishReason.PARTIAL, Usage(0, answer.tokens_of_round))
        request = inflight.request
        name = inflight.plan.model or request.model
        offered = ", ".join(self._offered(charged_tenant(request))) or "none that this tenant may name"
        return await answer.error(ErrorCode.MODEL_NOT_FOUND, f"model: there is no {name!r}; there are: {offered}")

    def _offered(self, tenant: str) -> list[str]:
        """The names of models that the tenant may use. A model that is named by its folder is `default`."""
        usable = (
            one for one in self._servings if self._tenants.may_use(tenant, one.names, is_adapter=bool(one.adapter))
        )
        return sorted({name for one in usable for name in one.names if not Path(name).is_absolute()})


def _code_of(failure: Failure) -> ErrorCode:
    return ErrorCode(failure.code) if failure.code in REQUEST_ERROR_CODES else ErrorCode.ENGINE_ERROR


def _pass(inflight: InFlightRequest, answer: AnswerLog, rounds: ToolRounds) -> None:
    inflight.rounds = rounds
    answer.continue_after(rounds)


def _same(inflight: InFlightRequest, recovered: Answer, serving: ServedModel, prompt: BuiltPrompt) -> bool:
    """Whether generating again would give the same tokens: same version of the model that has written since the last
    fallback, and same prompt as where it began, if it has written anything. False if Kafka has lost what precedes that.
    """
    if inflight.begin > recovered.position:
        return False
    written = inflight.written
    digests = {event.prompt_digest for event in written if event.index == inflight.begin and event.tokens}
    return digests <= {prompt.digest} and (not written or written[0].model_version == serving.model_version)


def _too_long(size: int) -> str:
    return (
        f"the turn has {size} bytes as JSON with its context, calls, results and private values, and a record has room "
        f"for {MAX_KEPT_BYTES}; send less, or begin another turn"
    )
