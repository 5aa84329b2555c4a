"""What a tenant may ask for: models, adapters, priority, and how much of it.

A worker checks every request before its first token, whichever producer has sent it. Gateways check by the same rules,
earlier. The operator's routes and fallbacks are not checked: they may choose any model.

The figures of a worker come from two sources:

- what the worker has admitted and seen answered in the last minute, counted at once;
- the topic `usage`: the last minute of the partitions of other workers, and the cost of the calendar month (UTC).

`usage` is published one window (`PARLEY_USAGE_WINDOW_S`) after the fact. So a limit is exact for the partitions of one
worker, and others see it one to two windows later: with N workers, a tenant that begins suddenly may use N times its
limit for that long. After that, a worker admits what the others leave, and its share of the limit by its partitions in
any case: without that share, all workers would stop and go together. Tokens are counted when an answer ends, so answers
that are under way exceed the limit by their own length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from app.policy.file import AUTO_MODEL, Policy, TenantRule
from app.wire.codes import ErrorCode
from app.wire.ids import tenant_of
from app.wire.request import Priority, Request
from app.wire.usage import UsageWindow
from app.wire.validation import foreign_tenant

EVERYBODY_ELSE = "*"
MINUTE_S = 60
MINUTE_MS = 60_000
REVISED_MS = 60 * MINUTE_MS
"""How long after a window its revisions may come: longer than `PARLEY_USAGE_GRACE_S` usually is."""
_ORDER = (Priority.BATCH, Priority.STANDARD, Priority.INTERACTIVE)


@dataclass(frozen=True, slots=True)
class TenantRefusal:
    """`retry_after_s` is set if the same request may be admitted later."""

    code: ErrorCode
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """Of one minute."""

    requests: float = 0.0
    tokens: float = 0.0


def charged_tenant(request: Request) -> str:
    """Whose request this is; empty without a tenant. That of the user counts, and `tenant` for users without one."""
    return tenant_of(request.user_id) or request.tenant or ""


def with_tenant(request: Request) -> Request:
    """The request as all parts behind its decoding see it: `tenant` is the one that it counts for."""
    return msgspec.structs.replace(request, tenant=charged_tenant(request) or None)


class TenantFigures:
    """What tenants have used. `now` is in Unix milliseconds; `owned` are those of the `partitions` that this process
    has, whose records on `usage` it has counted itself.
    """

    def __init__(self, now: Callable[[], int], owned: Callable[[], Collection[int]], partitions: int) -> None:
        self._now = now
        self._partitions = partitions
        self._owned = owned
        self._seconds: defaultdict[str, dict[int, Used]] = defaultdict(dict)
        self._costs: defaultdict[str, dict[int, float]] = defaultdict(dict)  # by minute
        self._published: defaultdict[str, _Published] = defaultdict(_Published)

    def count(self, tenant: str, *, requests: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Count what this process has admitted or seen answered."""
        now = self._now()
        seconds, second = self._seconds[tenant], now // 1000
        before = seconds.get(second, Used())
        seconds[second] = Used(before.requests + requests, before.tokens + tokens)
        for old in [one for one in seconds if one <= second - MINUTE_S]:
            del seconds[old]
        if cost:
            minute = now - now % MINUTE_MS
            self._costs[tenant][minute] = self._costs[tenant].get(minute, 0.0) + cost

    def add(self, window: UsageWindow) -> None:
        """Take a record of `usage`; a later revision of a window replaces the earlier one."""
        self._published[window.tenant].add(window)

    @property
    def share(self) -> float:
        """Which part of all partitions this process has."""
        return len(self._owned()) / self._partitions

    def own_minute(self, tenant: str) -> Used:
        """What this process has admitted and seen answered in the last minute."""
        since = self._now() // 1000 - MINUTE_S
        own = [used for second, used in self._seconds.get(tenant, {}).items() if second > since]
        return Used(sum(used.requests for used in own), sum(used.tokens for used in own))

    def others_minute(self, tenant: str) -> Used:
        """The newest minute of the other processes' partitions, by `usage`."""
        now, owned = self._now(), self._owned()
        recent = [
            window
            for window in self._published.get(tenant, _Published()).recent.values()
            if window.partition not in owned and _is_recent(window, now)
        ]
        newest: dict[int, int] = {}
        for window in recent:
            newest[window.partition] = max(window.window_start, newest.get(window.partition, 0))
        counted = [
            (window, MINUTE_MS / max(window.window_ms, MINUTE_MS))
            for window in recent
            if window.window_start > newest[window.partition] - MINUTE_MS
        ]
        return Used(
            sum(window.requests * part for window, part in counted),
            sum((window.prompt_tokens + window.completion_tokens) * part for window, part in counted),
        )

    def cost_of_month(self, tenant: str) -> float:
        """Of the windows that are published, and of what this process has seen since."""
        begin, costs = month_start(self._now()), self._costs.get(tenant, {})
        published = self._published.get(tenant, _Published())
        since = max(begin, published.until)
        for minute in [one for one in costs if one < since]:
            del costs[minute]
        return published.costs.get(begin, 0.0) + sum(costs.values())


@dataclass(slots=True)
class _Published:
    """What `usage` has of one tenant: its `recent` windows, which may still be revised, its `costs` by month, and the
    end of its newest window (`until`).
    """

    recent: dict[tuple[object, ...], UsageWindow] = field(default_factory=dict)
    costs: dict[int, float] = field(default_factory=dict)
    until: int = 0

    def add(self, window: UsageWindow) -> None:
        place = (window.model, window.route, window.experiment, window.arm)
        key = (window.window_start, window.partition, *place)
        known = self.recent.get(key)
        if known is not None and known.revision >= window.revision:
            return
        month = month_start(window.window_start)
        self.costs[month] = self.costs.get(month, 0.0) + window.cost - (0.0 if known is None else known.cost)
        self.until = max(self.until, window.window_start + window.window_ms)
        self.recent[key] = window
        oldest = window.window_start - REVISED_MS
        for old in [one for one, kept in self.recent.items() if kept.window_start < oldest]:
            del self.recent[old]
        for old_month in sorted(self.costs)[:-2]:
            del self.costs[old_month]


def _is_recent(window: UsageWindow, now: int) -> bool:
    """Whether the window may be the newest that is published by now: it ended within its own length and a minute."""
    return window.window_start + window.window_ms > now - MINUTE_MS - window.window_ms


class Tenants:
    """The rules of the policy's tenants, with their `figures`, in the deployment of this `region` and `group`."""

    def __init__(self, policy: Policy, figures: TenantFigures, *, region: str = "", group: str = "") -> None:
        self._rules: dict[str, TenantRule] = {}
        self._named = frozenset[str]()
        self._tells_apart = False
        self.figures = figures
        self._here = {"region": region, "group": group}
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Work by this policy from now on."""
        self._rules = policy.tenants
        in_routes = {tenant for route in policy.routes for tenant in route.when.tenant or ()}
        self._named = frozenset(in_routes | policy.tenants.keys() - {EVERYBODY_ELSE})
        shares_answers = policy.cache is not None and policy.cache.scope == "tenant"
        self._tells_apart = bool(self._named or policy.tenants or shares_answers)

    @property
    def has_quotas(self) -> bool:
        return any(rule.has_quota for rule in self._rules.values())

    def count(self, tenant: str, *, requests: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Count what this process has admitted or seen answered."""
        if self.has_quotas:
            self.figures.count(tenant, requests=requests, tokens=tokens, cost=cost)

    def rule_of(self, tenant: str) -> TenantRule | None:
        return self._rules.get(tenant) or self._rules.get(EVERYBODY_ELSE)

    def budgets(self) -> dict[str, float]:
        """Which part of its budget of this month each tenant has used that the policy names with one."""
        return {
            tenant: self.figures.cost_of_month(tenant) / rule.cost_per_month
            for tenant, rule in self._rules.items()
            if rule.cost_per_month and tenant != EVERYBODY_ELSE
        }

    def may_use(self, tenant: str, names: Collection[str], *, is_adapter: bool) -> bool:
        """Whether the tenant may name this model; `names` are all names that it has."""
        rule = self.rule_of(tenant)
        allowed = None if rule is None else rule.adapters if is_adapter else rule.models
        return allowed is None or not {*allowed}.isdisjoint(names)

    def misplaced(self, request: Request) -> TenantRefusal | None:
        """Why this deployment must not touch the request: its tenant belongs to another region or group."""
        rule = self.rule_of(charged_tenant(request))
        if rule is None:
            return None
        for name, here in self._here.items():
            home = getattr(rule, name)
            if home is not None and home != here:
                message = f"tenant: its {name} is {home!r}, and this service has {here!r}; send the request there"
                return TenantRefusal(ErrorCode.INVALID_REQUEST, message)
        return None

    def refusal(self, request: Request, names: Collection[str], *, is_adapter: bool) -> TenantRefusal | None:
        """Why the tenant may not ask for this, now; None if it may. `names` are those of the model that answers."""
        tenant = charged_tenant(request)
        if (foreign := self._foreign(request)) is not None:
            return TenantRefusal(ErrorCode.INVALID_REQUEST, foreign)
        rule, elsewhere = self.rule_of(tenant), self.misplaced(request)
        if rule is None or elsewhere is not None:
            return elsewhere
        if request.model not in {None, AUTO_MODEL} and not self.may_use(tenant, names, is_adapter=is_adapter):
            what = f"the {'adapter' if is_adapter else 'model'} {request.model}"
            return TenantRefusal(ErrorCode.MODEL_NOT_FOUND, f"model: this tenant may not use {what}")
        if _ORDER.index(request.priority) > _ORDER.index(rule.priority):
            message = f"priority: this tenant may ask for {rule.priority} at most"
            return TenantRefusal(ErrorCode.INVALID_REQUEST, message)
        return self._exhausted(tenant, rule) if rule.has_quota else None

    def _foreign(self, request: Request) -> str | None:
        """Why the request's `tenant` cannot be its user's. Where the policy tells tenants apart, a user without one
        belongs to those that it names alone: nobody can make up a tenant with limits, routes or a cache of its own.
        """
        is_named = tenant_of(request.user_id) is not None or request.tenant in {None, ""} | self._named
        if is_named or not self._tells_apart:
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


def month_start(now: int) -> int:
    """The beginning of the calendar month in UTC; both in Unix milliseconds."""
    at = datetime.fromtimestamp(now / 1000, UTC)
    return int(datetime(at.year, at.month, 1, tzinfo=UTC).timestamp() * 1000)
