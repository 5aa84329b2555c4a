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
        """Note the cost of a committed answer, and count it for its tenant. What was computed for an error has no
        price, but it counts as tokens.
        """
        tenant, partition = charged_tenant(inflight.request), inflight.record.partition
        if end.usage is None:
            if inflight.spent:
                self._tenants.count(tenant, partition, tokens=inflight.spent)
            return
        version, is_cached = end.model_version or "", inflight.plan.cached is not None
        default = self._servings.default.model_version if inflight.plan.route else version
        inflight.cost = self._prices.cost(version, end.usage, is_cached=is_cached)
        inflight.saved = self._prices.saved(version, end.usage, default=default, is_cached=is_cached)
        self._tenants.count(
            tenant,
            partition,
            tokens=end.usage.prompt_tokens + end.usage.completion_tokens + inflight.spent,
            cost=inflight.cost,
        )
