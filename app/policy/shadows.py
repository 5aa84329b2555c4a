"""Which answers of experiments another arm is asked for, too (`shadow` of a route)."""

from __future__ import annotations

import hashlib

from app.policy.file import Policy, Route
from app.wire.event import PlanDetails


class Shadows:
    """The choice depends on the request id alone, so an answer that is resumed elsewhere gets the same."""

    def __init__(self, policy: Policy) -> None:
        self._routes: dict[str, Route] = {}
        self.use(policy)

    def use(self, policy: Policy) -> None:
        self._routes = {route.name: route for route in policy.routes if route.shadow}

    def arm_for(self, plan: PlanDetails, request_id: str) -> str | None:
        """The other arm to ask; None if the request is not chosen, or if no arm of the plan has answered."""
        route = self._routes.get(plan.route or "")
        if route is None or plan.experiment != route.experiment or plan.model != plan.arm:
            return None
        others = sorted(model for model in route.models if model != plan.arm)
        digest = hashlib.blake2b(f"{route.experiment}\0{request_id}".encode(), digest_size=16).digest()
        if not others or int.from_bytes(digest[:8]) >= route.shadow * 2**64:
            return None
        return others[int.from_bytes(digest[8:]) % len(others)]
