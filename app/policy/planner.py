"""What is decided about an answer before its first token, and what a former owner has decided."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec

from app.delivery.inflight import InFlightRequest
from app.policy.file import AUTO_MODEL, DEFAULT_MODEL
from app.policy.health import ModelHealth
from app.policy.router import Router
from app.wire.event import FALLBACK, NO_PLAN, PlanDetails
from app.wire.request import Request
from app.wire.validation import prompt_bytes
from models.registry import ModelRegistry

_INLINE_BYTES = 8192
"""Tokenizing a longer prompt would hold the event loop."""
_TOKEN_BYTES = 64
"""A text with more bytes per counted token is long: it is not tokenized to find that out."""


class Planner:
    """Decides by the routes and the fallback chain of `router`, for the models of `servings`.

    A request that names a model gets that model or an error.
    """

    def __init__(self, router: Router, servings: ModelRegistry, health: ModelHealth) -> None:
        self._router = router
        self._servings = servings
        self._health = health

    async def count_long(self, request: Request) -> int | None:
        """The tokens of a prompt that is too long to be tokenized on the event loop, for `plan`, which needs them."""
        if not _may_fall_back(request) or not self._router.longest_counted or prompt_bytes(request) <= _INLINE_BYTES:
            return None
        return await asyncio.to_thread(self._prompt_tokens, request)

    def plan(self, inflight: InFlightRequest, prompt_tokens: int | None = None) -> PlanDetails:
        """The decisions about the answer. What a former owner has decided stands; if the model is not served here, only
        what routing decides is decided anew. What the guard has found and what was recalled stays. `prompt_tokens` are
        those of the request's own prompt, if they are known.
        """
        plan = inflight.logged
        if plan.at is None and inflight.at < inflight.record.timestamp:
            plan = msgspec.structs.replace(plan, at=inflight.at)
        is_decided = inflight.logged != NO_PLAN and (plan.model is None or self._servings.find(plan.model) is not None)
        if inflight.is_resumed or is_decided:
            return plan
        decided = self._router.decide(
            inflight.request, lambda: self._prompt_tokens(inflight.request) if prompt_tokens is None else prompt_tokens
        )
        if decided is not None:
            plan = _routed(plan, decided)
        elif plan.model is not None:  # a former owner with another policy had a model that is not served here
            plan = _routed(plan, PlanDetails(model=DEFAULT_MODEL))
        model = plan.model or DEFAULT_MODEL
        if not _may_fall_back(inflight.request) or self._health.takes(model, self._router.fallback):
            return plan
        return self._next(plan, {model}) or plan

    def begun(self, inflight: InFlightRequest) -> None:
        """The model of the plan has written its first token."""
        self._health.answered(_model_of(inflight))

    def failed(self, inflight: InFlightRequest) -> None:
        """The model of the plan has failed in this answer."""
        self._health.failed(_model_of(inflight), self._router.fallback)

    def next(self, inflight: InFlightRequest, at: int) -> PlanDetails | None:
        """The decision for the next model of the chain, which answers from the token index `at` on instead of the model
        of the plan; None if there is none.
        """
        inflight.failed_models.add(_model_of(inflight))
        return self._next(inflight.plan, inflight.failed_models, at) if _may_fall_back(inflight.request) else None

    def _next(self, plan: PlanDetails, failed: Collection[str], at: int = 0) -> PlanDetails | None:
        """The plan with the next model of the chain that is served, can begin there, and is not known to fail."""
        chain = self._router.fallback.chain
        place = chain.index(plan.model or DEFAULT_MODEL) + 1 if (plan.model or DEFAULT_MODEL) in chain else 0
        for name in (*chain[place:], *chain[:place]):
            serving = self._servings.find(name)
            if name in failed or serving is None or (at and not serving.continues):
                continue
            if self._health.takes(name, self._router.fallback):
                return msgspec.structs.replace(plan, model=name, notice=FALLBACK, from_index=at or None)
        return None

    def _prompt_tokens(self, request: Request) -> int:
        if request.prompt_token_ids is not None:
            return len(request.prompt_token_ids)
        size = prompt_bytes(request)
        if size > _TOKEN_BYTES * self._router.longest_counted:
            return size
        texts = [request.prompt or "", *(message.text for message in request.messages or ())]
        return self._servings.default.prompts.count("\n".join(filter(None, texts)))


def _routed(plan: PlanDetails, route: PlanDetails) -> PlanDetails:
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


def _model_of(inflight: InFlightRequest) -> str:
    return inflight.plan.model or inflight.request.model or DEFAULT_MODEL


def _may_fall_back(request: Request) -> bool:
    return request.model in {None, AUTO_MODEL}
