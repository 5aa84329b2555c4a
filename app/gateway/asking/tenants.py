"""What tenants may ask for, checked by the rules of the workers (app/features/quota), earlier."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from app.features.own.homes import Homes
from app.features.own.tables import homes_of
from app.features.quota.figures import MINUTE_MS, TenantFigures
from app.features.quota.tenants import Tenants
from app.features.quota.usage_feed import UsageFeed
from app.gateway.asking.models import ServedModels
from app.gateway.edge.errors import ApiError
from app.policy.file import Policy, TenantRule
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.ids import partition_for, tenant_of
from app.wire.request import Request
from app.wire.validation import charged_tenant
from models.interface.generation import Usage

_LONGEST_NAME = 64


class TenantLimits:
    """`read` are the partitions whose answers this gateway reads. A request that is sent here counts at once, any other
    with its end. Every end is on `tokens`, so the figures need `usage` for the cost of the month alone.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        models: ServedModels,
        partitions: int,
        read: Callable[[], Collection[int]],
    ) -> None:
        figures = TenantFigures(lambda: time.time_ns() // 1_000_000, read, partitions, reads_back_ms=MINUTE_MS)
        self._tenants = Tenants(policy, figures)
        self._here = settings.here
        self._homes = Homes(homes_of(policy, self._here))
        self._feed = UsageFeed(settings, self._tenants)
        self._models = models
        self._partitions = settings.partitions

    def use(self, policy: Policy) -> None:
        self._tenants.use(policy)
        self._homes = Homes(homes_of(policy, self._here))

    async def follow(self) -> None:
        """Read `usage` until cancelled."""
        await self._feed.run()

    def tools_of(self, tenant: str) -> tuple[str, ...]:
        """The tools that programs may run for the tenant, by name."""
        rule = self._tenants.rule_of(tenant)
        return (rule and rule.tools) or ()

    def check(self, request: Request) -> None:
        """Raises `ApiError` if the request's tenant may not ask for this, now."""
        if (elsewhere := self._homes.refusal(charged_tenant(request))) is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, elsewhere, status=403)
        names, is_adapter = self._models.names_of(request.model), self._models.is_adapter(request.model)
        refusal = self._tenants.refusal(request, names, is_adapter=is_adapter)
        if refusal is not None:
            status = 403 if refusal.code is ErrorCode.INVALID_REQUEST else None
            raise ApiError(refusal.code, refusal.message, status=status, retry_after_s=refusal.retry_after_s)
        if request.model is not None and self._models.is_unknown(request.model):
            there_are = ", ".join(name for name in self._models.names() if self.may_name(request.tenant or "", name))
            message = f"model: there is no {request.model[:_LONGEST_NAME]!r}; there are: {there_are}"
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, message, param="model")

    def may_name(self, tenant: str, model: str) -> bool:
        """Whether requests of the tenant may name the model."""
        return self._tenants.may_use(tenant, self._models.names_of(model), is_adapter=self._models.is_adapter(model))

    def admitted(self, asked: Sequence[Request]) -> None:
        """Count requests that are sent here at once: a burst of them is under way before the first one ends."""
        for request in asked:
            self._tenants.count(charged_tenant(request), self._partition(request.user_id), requests=1)

    def answered(self, user_id: str, usage: Usage | None, *, is_counted: bool) -> None:
        """Count an answer that has ended, and its request unless it is counted already."""
        tokens = 0 if usage is None else usage.prompt_tokens + usage.completion_tokens
        requests = 0 if is_counted else 1
        self._tenants.count(tenant_of(user_id) or "", self._partition(user_id), requests=requests, tokens=tokens)

    def _partition(self, user_id: str) -> int:
        return partition_for(user_id, self._partitions)

    def report(self, tenant: str) -> dict[str, Any]:
        """The limits of the tenant, and what it has used."""
        figures = self._tenants.figures
        used = figures.own_minute(tenant)
        return {
            "limits": self._tenants.rule_of(tenant) or TenantRule(),
            "requests_last_minute": used.requests,
            "tokens_last_minute": used.tokens,
            "cost_of_month": round(figures.cost_of_month(tenant), 9),
        }
