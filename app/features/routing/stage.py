"""Which model answers: by the routes, and the next one of the fallback chain if one fails.

    round:  prompt -> engine -> token events, until the answer or its round of calls ends
               ^                                    |
               '-- the next model of the policy's chain <- a failure that the same model has repeated (pipeline.py)

A request that names a model gets that model or an error. What the guard has detected and what was recalled stays when
only the route is decided anew, because the model of a former owner's policy is not served here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing

import msgspec

from app.answering.pipeline import code_of, has_model
from app.answering.run import Run
from app.answering.stage import Decide, Ending, Feature, Generate, Round, Stage
from app.audit.records import audit_of_retreat
from app.delivery.accepted import Former
from app.delivery.commits.commit import Commit
from app.delivery.inflight import Outcome
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.partition import State
from app.features.host import WorkerParts
from app.features.routing.canary import Canaries
from app.features.routing.health import ModelHealth
from app.features.routing.load_figures import LoadFigures
from app.features.routing.router import Router
from app.policy.file import AUTO_MODEL, DEFAULT_MODEL, Policy
from app.wire.error import ErrorCode
from app.wire.event import FALLBACK, Plan
from app.wire.request import Request
from app.wire.validation import prompt_bytes
from models.interface.generation import Delta, Failure, FinishReason, Job, StreamEvent
from models.served.registry import ModelRegistry

log = logging.getLogger(__name__)

_INLINE_BYTES = 8192
"""Tokenizing a longer prompt would hold the event loop."""
_TOKEN_BYTES = 64
"""A text with more bytes per counted token is long: it is not tokenized to find that out."""


class Routing(Feature):
    """`load`: the figures that routes watch, kept while one does."""

    def __init__(
        self,
        router: Router,
        models: ModelRegistry,
        health: ModelHealth,
        canaries: Canaries,
        load: Observer = UNOBSERVED,
    ) -> None:
        self.router, self.models, self.health, self.canaries = router, models, health, canaries
        self._load = load

    @classmethod
    def of(cls, host: WorkerParts) -> Routing:
        load = LoadFigures(lambda: sum(engine.stats.waiting for engine in host.models.engines))
        canaries = Canaries(host.policy)
        router = Router(host.policy, host.clock, load.now, canaries.is_out)
        return cls(router, host.models, ModelHealth(host.clock), canaries, load)

    @property
    def is_on(self) -> bool:
        return self.router.is_on

    @property
    def observer(self) -> Observer:
        return self._load if self.router.reliefs else UNOBSERVED

    def use(self, policy: Policy) -> None:
        self.router.use(policy)
        self.canaries.use(policy)

    def update(self) -> None:
        self.router.update()

    def stage(self, run: Run) -> Stage:
        return Routed(run, self)

    def next(self, plan: Plan, failed: Collection[str], user_id: str, at: int = 0) -> Plan | None:
        """The plan with the next model of the chain that is served, can begin at the token `at`, and is not known to
        fail the user; None if there is none.
        """
        chain, model = self.router.fallback.chain, plan.model or DEFAULT_MODEL
        begin = chain.index(model) + 1 if model in chain else 0
        for name in (*chain[begin:], *chain[:begin]):
            served = self.models.find(name)
            if name in failed or served is None or (at and not served.continues):
                continue
            if self.health.admits(name, self.router.fallback, user_id):
                return msgspec.structs.replace(plan, model=name, notice=FALLBACK, from_index=at or None)
        return None

    async def decide(self, request: Request) -> Plan | None:
        """The decision of the first route that matches the request; None if none does."""
        tokens: int | None = None
        if _may_fall_back(request) and self.router.longest_counted and prompt_bytes(request) > _INLINE_BYTES:
            tokens = await asyncio.to_thread(self._prompt_tokens, request)
        return self.router.decide(request, lambda: self._prompt_tokens(request) if tokens is None else tokens)

    def _prompt_tokens(self, request: Request) -> int:
        if request.prompt_token_ids is not None:
            return len(request.prompt_token_ids)
        size = prompt_bytes(request)
        if size > _TOKEN_BYTES * self.router.longest_counted:
            return size
        texts = [request.prompt or "", *(message.text for message in request.messages or ())]
        return self.models.default.prompts.count("\n".join(filter(None, texts)))


class Routed(Stage):
    """`_failed`: the models that have failed in this answer."""

    def __init__(self, run: Run, routing: Routing) -> None:
        super().__init__(run)
        self._routing = routing
        self._failed: set[str] = set()

    def is_decided(self, former: Former) -> bool:
        return has_model(former, self._routing.models)

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        accepted, routing = self.run.accepted, self._routing
        decided = await routing.decide(accepted.request)
        if decided is not None:
            plan = _routed(plan, decided)
        elif plan.model is not None:  # a former owner with another policy had a model that is not served here
            plan = _routed(plan, Plan(model=DEFAULT_MODEL))
        model = plan.model or DEFAULT_MODEL
        user_id = accepted.request.user_id
        if _may_fall_back(accepted.request) and not routing.health.admits(model, routing.router.fallback, user_id):
            plan = routing.next(plan, {model}, user_id) or plan
        return await then(plan)

    async def round(self, then: Round) -> Ending:
        run = self.run
        while True:
            if run.model() is None:
                await self._is_followed("its model is served no longer")
            end = await then()
            if isinstance(end, Failure):
                if not await self._goes_on(end):
                    return end
            elif end.reason is not FinishReason.PARTIAL or not await self._is_followed(
                "its server cannot continue the answer"
            ):
                return end

    def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        return then(job) if self.run.answer.index else self._watched(job, then)

    async def _watched(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        """The model's first token proves that it works; a repeated answer proves nothing."""
        answer, is_new = self.run.answer, True
        async with aclosing(then(job)) as events:
            async for event in events:
                if is_new and isinstance(event, Delta) and answer.plan.cached is None:
                    is_new = False
                    self._routing.health.answered(self._model, self.run.accepted.request.user_id)
                yield event

    @property
    def _model(self) -> str:
        return self.run.answer.plan.model or self.run.accepted.request.model or DEFAULT_MODEL

    async def _goes_on(self, failure: Failure) -> bool:
        """After a failure, the next model of the chain goes on; False if the answer ends with the failure."""
        code = code_of(failure)
        if self.run.inflight.stop.reason is not None or code not in {ErrorCode.ENGINE_ERROR, ErrorCode.OVERLOADED}:
            return False
        user_id = self.run.accepted.request.user_id
        self._routing.health.failed(self._model, self._routing.router.fallback, user_id)
        return await self._is_followed(code)

    async def _is_followed(self, why: str) -> bool:
        """Hand the answer to the next model of the chain; False if there is none. A call that is half written cannot be
        handed over, because calls are no text.
        """
        run, answer = self.run, self.run.answer
        if answer.has_open_calls:
            return False
        self._failed.add(self._model)
        if not _may_fall_back(run.accepted.request):
            return False
        plan = self._routing.next(answer.plan, self._failed, run.accepted.request.user_id, answer.index)
        if plan is None:
            return False
        log.warning("request %s: model %s answers from token %s on, after %s", run.key, plan.model, answer.index, why)
        if (model := run.model_by(plan)) is not None:
            answer.write_as(model)
        await run.replan(plan)
        return True

    def committed(self, outcome: Outcome) -> None:
        retreat = self._routing.canaries.answered(outcome, self._failed)
        partition = self.run.partition
        if retreat is not None and partition.state is State.OWNED:
            audit = audit_of_retreat(*retreat, partition.ownership.clock.now())
            partition.spawn(partition.commit(Commit(audit=audit)))


def _routed(plan: Plan, route: Plan) -> Plan:
    """The plan with another route, before the first token: what its former model has produced does not count."""
    return msgspec.structs.replace(
        plan,
        model=route.model,
        route=route.route,
        experiment=route.experiment,
        arm=route.arm,
        notice=route.notice,
        from_index=None,
        cached=None,
        chosen=None,
        other_tokens=0,
    )


def _may_fall_back(request: Request) -> bool:
    return request.model in {None, AUTO_MODEL}
