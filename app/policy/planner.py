"""What is decided about an answer before its first token, and what a former owner has decided."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from app.delivery.inflight import InFlightRequest
from app.policy.file import AUTO_MODEL, DEFAULT_MODEL
from app.policy.health import ModelHealth
from app.policy.router import Router
from app.wire.event import FALLBACK, PlanDetails
from app.wire.request import Request
from app.wire.validation import prompt_bytes
from models.registry import ModelRegistry

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

    def plan(self, inflight: InFlightRequest) -> PlanDetails:
        """The decisions about the answer. What a former owner has decided stands."""
        plan = inflight.logged
        if plan.at is None and inflight.at < inflight.record.timestamp:
            plan = msgspec.structs.replace(plan, at=inflight.at)
        has_begun = inflight.recovered is not None and bool(inflight.recovered.segments)
        if has_begun or (plan.model is not None and self._servings.find(plan.model) is not None):
            return plan
        decided = self._router.decide(inflight.request, lambda: self._prompt_tokens(inflight.request))
        if decided is not None:
            plan = msgspec.structs.replace(decided, at=plan.at)
        elif plan.model is not None:  # a former owner with another policy had a model that is not served here
            plan = PlanDetails(at=plan.at, model=DEFAULT_MODEL)
        model = plan.model or DEFAULT_MODEL
        if not _may_fall_back(inflight.request) or self._health.takes(model, self._router.fallback):
            return plan
        return self._next(plan, {model}) or plan

    def begun(self, inflight: InFlightRequest) -> None:
        """The model of the plan has written its first token."""
        self._health.answered(_model_of(inflight))

    def failed(self, inflight: InFlightRequest) -> None:
        """The model of the plan has failed in this answer."""
        model = _model_of(inflight)
        self._health.failed(model, self._router.fallback)
        inflight.failed_models.add(model)

    def next(self, inflight: InFlightRequest) -> PlanDetails | None:
        """The decision for the next model of the chain; None if there is none."""
        return self._next(inflight.plan, inflight.failed_models) if _may_fall_back(inflight.request) else None

    def _next(self, plan: PlanDetails, failed: Collection[str]) -> PlanDetails | None:
        """The plan with the next model of the chain that is served and not known to fail."""
        chain = self._router.fallback.chain
        at = chain.index(plan.model or DEFAULT_MODEL) + 1 if (plan.model or DEFAULT_MODEL) in chain else 0
        for name in (*chain[at:], *chain[:at]):
            serving = self._servings.find(name)
            if name not in failed and serving is not None and self._health.takes(name, self._router.fallback):
                return msgspec.structs.replace(plan, model=name, notice=FALLBACK)
        return None

    def _prompt_tokens(self, request: Request) -> int:
        if request.prompt_token_ids is not None:
            return len(request.prompt_token_ids)
        size = prompt_bytes(request)
        if size > _TOKEN_BYTES * self._router.longest_counted:
            return size
        texts = [request.prompt or "", *(message.text for message in request.messages or ())]
        return self._servings.default.prompts.count("\n".join(filter(None, texts)))


def _model_of(inflight: InFlightRequest) -> str:
    return inflight.plan.model or inflight.request.model or DEFAULT_MODEL


def _may_fall_back(request: Request) -> bool:
    return request.model in {None, AUTO_MODEL}
