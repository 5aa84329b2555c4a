"""What is decided about an answer before its first token, and what a former owner has decided."""

from __future__ import annotations

import msgspec

from app.delivery.inflight import InFlightRequest
from app.policy.file import DEFAULT_MODEL
from app.policy.router import Router
from app.wire.event import PlanDetails
from app.wire.request import Request
from app.wire.validation import prompt_bytes
from models.registry import ModelRegistry

_TOKEN_BYTES = 64
"""A text with more bytes per counted token is long: it is not tokenized to find that out."""


class Planner:
    """Decides by the routes of `router`, for the models of `servings`."""

    def __init__(self, router: Router, servings: ModelRegistry) -> None:
        self._router = router
        self._servings = servings

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
            return msgspec.structs.replace(decided, at=plan.at)
        # A former owner with another policy had a model that is not served here.
        return plan if plan.model is None else PlanDetails(at=plan.at, model=DEFAULT_MODEL)

    def _prompt_tokens(self, request: Request) -> int:
        if request.prompt_token_ids is not None:
            return len(request.prompt_token_ids)
        size = prompt_bytes(request)
        if size > _TOKEN_BYTES * self._router.longest_counted:
            return size
        texts = [request.prompt or "", *(message.text for message in request.messages or ())]
        return self._servings.default.prompts.count("\n".join(filter(None, texts)))
