"""What an answer costs, and whose limits it counts for."""

from __future__ import annotations

from app.delivery.inflight import InFlightRequest
from app.policy.tenants import Tenants, charged_tenant
from app.prices import PriceList
from app.wire.event import TokenEvent
from models.registry import ModelRegistry


class Charging:
    def __init__(self, prices: PriceList, tenants: Tenants, servings: ModelRegistry) -> None:
        self._prices = prices
        self._tenants = tenants
        self._servings = servings

    def charge(self, inflight: InFlightRequest, end: TokenEvent) -> None:
        """Note the cost of a committed answer, and count it for its tenant."""
        if end.usage is None:
            return
        version, is_cached = end.model_version or "", inflight.plan.cached is not None
        default = self._servings.default.model_version if inflight.plan.route else version
        inflight.cost = self._prices.cost(version, end.usage, is_cached=is_cached)
        inflight.saved = self._prices.saved(version, end.usage, default=default, is_cached=is_cached)
        self._tenants.count(
            charged_tenant(inflight.request),
            inflight.record.partition,
            tokens=end.usage.prompt_tokens + end.usage.completion_tokens,
            cost=inflight.cost,
        )
