"""What a tenant may ask for: models, adapters, priority, and how much of it.

A worker checks every request before its first token, whichever producer has sent it. Gateways check by the same rules,
earlier. The operator's routes and fallbacks are not checked: they may choose any model.

Its figures come from what the worker counts itself and from the topic `usage` (figures.py).
`usage` is published one window (`PARLEY_USAGE_WINDOW_S`) after the fact. So a limit is exact for the partitions of one
worker, and others see it one to two windows later: with N workers, a tenant that begins suddenly may use N times its
limit for that long. After that, a worker admits what the others leave, and its share of the limit by its partitions in
any case: without that share, all workers would stop and go together. Tokens are counted when an answer ends, so answers
that are under way exceed the limit by their own length.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from app.features.quota.figures import ALL_OTHERS, MINUTE_S, TenantFigures
from app.policy.file import AUTO_MODEL, Policy, TenantRule
from app.wire.error import ErrorCode
from app.wire.ids import tenant_of
from app.wire.request import Priority, Request
from app.wire.tools import ToolMode
from app.wire.validation import charged_tenant, foreign_tenant

_ORDER = (Priority.BATCH, Priority.STANDARD, Priority.INTERACTIVE)


@dataclass(frozen=True, slots=True)
class TenantRefusal:
    """`retry_after_s` is set if the same request may be admitted later."""

    code: ErrorCode
    message: str
    retry_after_s: float | None = None


class Tenants:
    """The rules of the policy's tenants, with their `figures`."""

    def __init__(self, policy: Policy, figures: TenantFigures) -> None:
        self._rules: dict[str, TenantRule] = {}
        self._named = frozenset[str]()
        self._separates_tenants = False
        self.figures = figures
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Work by this policy from now on."""
        self._rules = policy.tenants
        self.figures.named = policy.tenants.keys() - {ALL_OTHERS}
        in_routes = {tenant for route in policy.routes for tenant in route.when.tenant or ()}
        self._named = frozenset(in_routes | policy.tenants.keys() - {ALL_OTHERS})
        shares_answers = policy.cache is not None and policy.cache.scope == "tenant"
        self._separates_tenants = bool(self._named or policy.tenants or shares_answers)

    @property
    def is_on(self) -> bool:
        """Whether the policy has rules about tenants."""
        return bool(self._rules) or self._separates_tenants

    @property
    def has_quotas(self) -> bool:
        return any(rule.has_quota for rule in self._rules.values())

    def count(self, tenant: str, partition: int, *, requests: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Count what this process has admitted or seen answered on this partition."""
        if self.has_quotas:
            self.figures.count(tenant, partition, requests=requests, tokens=tokens, cost=cost)

    def rule_of(self, tenant: str) -> TenantRule | None:
        return self._rules.get(tenant) or self._rules.get(ALL_OTHERS)

    def budgets(self) -> dict[str, float]:
        """Which part of its budget of this month each tenant has used that the policy names with one."""
        return {
            tenant: self.figures.cost_of_month(tenant) / rule.cost_per_month
            for tenant, rule in self._rules.items()
            if rule.cost_per_month and tenant != ALL_OTHERS
        }

    def may_use(self, tenant: str, names: Collection[str], *, is_adapter: bool) -> bool:
        """Whether the tenant may name this model; `names` are all names that it has."""
        rule = self.rule_of(tenant)
        allowed = None if rule is None else rule.adapters if is_adapter else rule.models
        return allowed is None or not {*allowed}.isdisjoint(names)

    def refusal(self, request: Request, names: Collection[str], *, is_adapter: bool) -> TenantRefusal | None:
        """Why the tenant may not ask for this, now; None if it may. `names` are those of the model that answers."""
        tenant = charged_tenant(request)
        if (foreign := self._foreign(request)) is not None:
            return TenantRefusal(ErrorCode.INVALID_REQUEST, foreign)
        rule = self.rule_of(tenant)
        if rule is None:
            return None
        if request.model not in {None, AUTO_MODEL} and not self.may_use(tenant, names, is_adapter=is_adapter):
            what = f"the {'adapter' if is_adapter else 'model'} {request.model}"
            return TenantRefusal(ErrorCode.MODEL_NOT_FOUND, f"model: this tenant may not use {what}")
        if _ORDER.index(request.priority) > _ORDER.index(rule.priority):
            message = f"priority: this tenant may ask for {rule.priority} at most"
            return TenantRefusal(ErrorCode.INVALID_REQUEST, message)
        if (tool := _forbidden_tool(request, rule)) is not None:
            message = f"tools: programs may not run {tool!r} for this tenant (tool_mode 'kafka')"
            return TenantRefusal(ErrorCode.INVALID_REQUEST, message)
        return self._exhausted(tenant, rule) if rule.has_quota else None

    def _foreign(self, request: Request) -> str | None:
        """Why the request's `tenant` cannot be its user's. Where the policy distinguishes tenants, a user without one
        belongs to those that it names alone: no user can make up a tenant with limits, routes or a cache of its own.
        """
        is_named = tenant_of(request.user_id) is not None or request.tenant in {None, ""} | self._named
        if is_named or not self._separates_tenants:
            return foreign_tenant(request)
        return (
            f"tenant: the user {request.user_id!r} has none, and the policy names no tenant {request.tenant!r}; the "
            f"users of a tenant are tenant/user"
        )

    def _exhausted(self, tenant: str, rule: TenantRule) -> TenantRefusal | None:
        own, others = self.figures.own_minute(tenant), self.figures.others_minute(tenant)
        for name, limit, mine, theirs in (
            ("requests", rule.requests_per_min, own.requests, others.requests),
            ("tokens", rule.tokens_per_min, own.tokens, others.tokens),
        ):
            if limit is not None and mine + theirs >= limit and mine >= limit * self.figures.share:
                message = f"this tenant has used its {limit} {name} per minute"
                return TenantRefusal(ErrorCode.RATE_LIMITED, message, float(MINUTE_S))
        if rule.cost_per_month is not None and self.figures.cost_of_month(tenant) >= rule.cost_per_month:
            message = f"this tenant has used its budget of {rule.cost_per_month:g} of this month"
            return TenantRefusal(ErrorCode.RATE_LIMITED, message)
        return None


def _forbidden_tool(request: Request, rule: TenantRule) -> str | None:
    if rule.tools is None or request.tool_mode is not ToolMode.KAFKA:
        return None
    return next((tool.function.name for tool in request.tools or () if tool.function.name not in rule.tools), None)
