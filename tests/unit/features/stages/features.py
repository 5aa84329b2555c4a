"""The features of a policy, with analyzers, judges and an index that follow from their texts alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from app.features.admission import Admitting
from app.features.best_of import BestOf
from app.features.cache.recordings import ResponseCache
from app.features.cache.stage import Cache
from app.features.guard.fair_order import Asker
from app.features.guard.guard import Guard
from app.features.guard.masking import Masking
from app.features.guard.moderation import Moderation
from app.features.plugged import PluggedIn
from app.features.quota.figures import TenantFigures
from app.features.quota.stage import Quota
from app.features.quota.tenants import Tenants
from app.features.recall.stage import Recall
from app.features.routing.canary import Canaries
from app.features.routing.health import ModelHealth
from app.features.routing.load_figures import Load
from app.features.routing.router import Router
from app.features.routing.stage import Routing
from app.policy.file import CacheRules, Policy
from app.policy.guard_rules import GuardRules
from app.prices import PriceList
from app.private.value import PrivateValue
from app.search.vector_store import Query
from app.wire.event import RecalledTurn
from models.served.registry import ModelRegistry, ServedModel
from tests.unit.answering.bench import ASKED_AT, SETTINGS

EMAIL = PrivateValue("EMAIL_ADDRESS", "ann@example.org")
OLD = RecalledTurn("old", "where?", "there", ASKED_AT - 1000)
_EMAILS = re.compile(r"[a-z.]+@[a-z]+\.[a-z]+")


class Finds:
    """An analyzer of mail addresses. `during` is called while it reads; `error` is what it raises."""

    def __init__(self, during: Callable[[], None] = lambda: None, error: Exception | None = None) -> None:
        self.texts: list[str] = []
        self.during, self.error = during, error

    async def find(self, texts: Sequence[str], asker: Asker) -> tuple[PrivateValue, ...]:
        del asker
        self.texts += texts
        self.during()
        if self.error is not None:
            raise self.error
        found = (value for text in texts for value in _EMAILS.findall(text))
        return tuple(PrivateValue("EMAIL_ADDRESS", value) for value in dict.fromkeys(found))

    def forget(self, user: str) -> None:
        """It remembers nothing."""


class Judges:
    """A text belongs to a category if it has its name in it."""

    def __init__(self, during: Callable[[], None] = lambda: None, error: Exception | None = None) -> None:
        self.texts: list[str] = []
        self.during, self.error = during, error

    async def categories_of(self, texts: Sequence[str], categories: frozenset[str], asker: Asker) -> frozenset[str]:
        del asker
        self.texts += texts
        self.during()
        if self.error is not None:
            raise self.error
        return frozenset(name for name in categories if any(name in text for text in texts))

    def forget(self, user: str) -> None:
        """They remember nothing."""

    async def warm(self) -> None:
        """They load nothing."""

    async def close(self) -> None:
        """They hold nothing."""


class Related:
    """The index of a user with these turns."""

    def __init__(self, *turns: RecalledTurn, during: Callable[[], None] = lambda: None) -> None:
        self.turns, self.during = turns, during
        self.queries: list[Query] = []

    async def find(self, query: Query, budget_s: float) -> list[RecalledTurn]:
        assert budget_s > 0
        self.queries.append(query)
        self.during()
        return [*self.turns]


def guard(finds: Finds | None = None, judges: Judges | None = None, **rules: Any) -> tuple[Masking, Moderation]:
    found, judged = finds or Finds(), judges or Judges()
    one = Guard(
        Policy(guard=GuardRules(**rules)), lambda _rules: found, lambda size: b"s" * size, lambda _rules: judged
    )
    return Masking(one), Moderation(one)


def recall(related: Related | None, turns: int = 0) -> Recall:
    return Recall(SETTINGS, policy_of(recall={"turns": turns}), cast(Any, related))


def policy_of(**tables: Any) -> Policy:
    return msgspec.convert(tables, Policy)


def routing(policy: Policy, models: Sequence[ServedModel], clock: Callable[[], float] = lambda: 0.0) -> Routing:
    canaries = Canaries(policy)
    router = Router(policy, clock, Load, canaries.is_out)
    return Routing(router, ModelRegistry(*models), ModelHealth(clock), canaries)


def cache(clock: Callable[[], float] = lambda: 0.0) -> Cache:
    return Cache(ResponseCache(Policy(cache=CacheRules(ttl_s=60.0)), clock))


def quota(policy: Policy, models: Sequence[ServedModel]) -> Quota:
    figures = TenantFigures(lambda: ASKED_AT, lambda: [3], 1)
    return Quota(Tenants(policy, figures), PriceList(SETTINGS.prices, policy), ModelRegistry(*models))


def best_of(embedder: Any = None) -> BestOf:
    return BestOf(PluggedIn(embedder=embedder))


def admission(policy: Policy) -> Admitting:
    return Admitting(PluggedIn(policy))
