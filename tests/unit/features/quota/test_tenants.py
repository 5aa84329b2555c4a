from __future__ import annotations

from typing import Any

import pytest

from app.features.quota.figures import MINUTE_MS, TenantFigures, month_start
from app.features.quota.tenants import Tenants
from app.policy.file import CacheRules, Policy, Route, TenantRule, When
from app.wire.error import ErrorCode
from app.wire.request import Priority, Request
from app.wire.tools import Function, ToolField, ToolMode
from app.wire.usage import Latencies, UsageWindow
from app.wire.validation import with_tenant

NOW = 1_790_000_000_000 - 1_790_000_000_000 % MINUTE_MS  # the beginning of a minute in the middle of a month
ACME = TenantRule(
    models=("default", "small"),
    adapters=("acme-tone",),
    priority=Priority.STANDARD,
    requests_per_min=10,
    tokens_per_min=1000,
    cost_per_month=5.0,
)
OTHERS = TenantRule(models=("small",), priority=Priority.BATCH)


class Clocked:
    """Tenants of a worker that owns the partitions 0 and 1."""

    def __init__(self, **rules: TenantRule) -> None:
        self.now = NOW - MINUTE_MS
        self.figures = TenantFigures(lambda: self.now, lambda: {0, 1}, 8)
        self.tenants = Tenants(Policy(tenants=rules or {"acme": ACME, "*": OTHERS}), self.figures)
        self.figures.own_minute("acme")  # the partitions have come a minute ago
        self.now = NOW

    def refused(self, *, is_adapter: bool = False, **fields: Any) -> ErrorCode | None:
        request = Request(**{"request_id": "r", "user_id": "acme/nina", "prompt": "x", **fields})
        names = {request.model or "default"}
        found = self.tenants.refusal(request, names, is_adapter=is_adapter)
        return None if found is None else found.code


def window(partition: int, ago_ms: int = 0, **fields: Any) -> UsageWindow:
    """A window that ended so long ago."""
    none = Latencies(0, 0, 0)
    values: dict[str, Any] = {"requests": 1, "revision": 1, "tenant": "acme", "model": "m@1", **fields}
    return UsageWindow(
        window_start=NOW - MINUTE_MS - ago_ms,
        window_ms=MINUTE_MS,
        partition=partition,
        first_token_ms=none,
        duration_ms=none,
        created_at=NOW,
        **values,
    )


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, None),
        ({"model": "small"}, None),
        ({"model": "auto"}, None),
        ({"model": "large"}, ErrorCode.MODEL_NOT_FOUND),
        ({"model": "acme-tone", "is_adapter": True}, None),
        ({"model": "other-tone", "is_adapter": True}, ErrorCode.MODEL_NOT_FOUND),
        ({"model": "small", "is_adapter": True}, ErrorCode.MODEL_NOT_FOUND),
        ({"priority": Priority.BATCH}, None),
        ({"priority": Priority.INTERACTIVE}, ErrorCode.INVALID_REQUEST),
        ({"tenant": "acme"}, None),
        ({"tenant": "rival"}, ErrorCode.INVALID_REQUEST),
        ({"user_id": "omar", "tenant": "acme"}, None),
        ({"user_id": "omar", "priority": Priority.BATCH}, None),
        ({"user_id": "omar"}, ErrorCode.INVALID_REQUEST),
        ({"user_id": "omar", "priority": Priority.BATCH, "model": "small"}, None),
        ({"user_id": "rival/omar", "priority": Priority.BATCH, "model": "small"}, None),
        ({"user_id": "rival/omar", "tenant": "acme"}, ErrorCode.INVALID_REQUEST),
        ({"user_id": "omar", "tenant": "rival", "priority": Priority.BATCH}, ErrorCode.INVALID_REQUEST),
        ({"user_id": "omar", "tenant": "*", "priority": Priority.BATCH}, ErrorCode.INVALID_REQUEST),
        ({"user_id": "omar", "priority": Priority.BATCH, "model": "default"}, ErrorCode.MODEL_NOT_FOUND),
    ],
)
def test_a_tenant_may_ask_for_what_its_rule_names(fields: dict[str, Any], code: ErrorCode | None) -> None:
    assert Clocked().refused(**fields) == code


@pytest.mark.parametrize(
    ("allowed", "mode", "names", "named"),
    [
        (None, ToolMode.KAFKA, ["refund"], None),
        (("status",), ToolMode.KAFKA, ["status"], None),
        (("status",), ToolMode.KAFKA, [], None),
        (("status",), ToolMode.KAFKA, ["status", "refund"], "'refund'"),
        ((), ToolMode.KAFKA, ["status"], "'status'"),
        ((), ToolMode.CLIENT, ["refund"], None),
    ],
)
def test_programs_run_the_tools_alone_that_the_tenant_may_use(
    allowed: tuple[str, ...] | None, mode: ToolMode, names: list[str], named: str | None
) -> None:
    tenants = Tenants(Policy(tenants={"acme": TenantRule(tools=allowed)}), TenantFigures(lambda: NOW, lambda: {0}, 1))
    tools = tuple(ToolField(function=Function(name=name)) for name in names)
    request = Request(request_id="r", user_id="acme/nina", prompt="x", tools=tools, tool_mode=mode)
    refusal = tenants.refusal(request, {"default"}, is_adapter=False)
    assert (refusal is None) == (named is None)
    if refusal is not None and named is not None:
        assert refusal.code is ErrorCode.INVALID_REQUEST
        assert named in refusal.message


def test_without_tenants_everything_is_as_it_was() -> None:
    tenants = Tenants(Policy(), TenantFigures(lambda: NOW, lambda: {0}, 1))
    for fields in ({"user_id": "acme/nina"}, {"user_id": "nina", "tenant": "acme"}):
        request = Request(request_id="r", priority=Priority.INTERACTIVE, **fields)
        assert tenants.refusal(request, {"any"}, is_adapter=False) is None
        assert with_tenant(request).tenant == "acme"
    assert with_tenant(Request(request_id="r", user_id="nina", tenant="")).tenant is None


@pytest.mark.parametrize(
    ("policy", "is_refused"),
    [
        (Policy(), False),
        (Policy(cache=CacheRules(ttl_s=1)), False),
        (Policy(cache=CacheRules(ttl_s=1, scope="tenant")), True),
        (Policy(routes=(Route(name="a", when=When(tenant=("lab",)), model="default"),)), True),
        (Policy(routes=(Route(name="a", when=When(tenant=("acme",)), model="default"),)), False),
        (Policy(tenants={"*": TenantRule()}), True),
        (Policy(tenants={"acme": TenantRule()}), False),
    ],
)
def test_a_user_without_a_tenant_belongs_only_to_tenants_that_the_policy_names(
    policy: Policy, *, is_refused: bool
) -> None:
    tenants = Tenants(policy, TenantFigures(lambda: NOW, lambda: {0}, 1))
    request = Request(request_id="r", user_id="nina", tenant="acme")
    refusal = tenants.refusal(request, {"any"}, is_adapter=False)
    assert (refusal is not None) == is_refused
    if refusal is not None:
        assert "'nina'" in refusal.message
        assert "'acme'" in refusal.message


def test_a_limit_counts_the_last_minute_and_lets_go_of_it() -> None:
    clocked = Clocked()
    for _ in range(10):
        assert clocked.refused() is None
        clocked.tenants.count("acme", 0, requests=1)
        clocked.now += 1000
    assert clocked.refused() is ErrorCode.RATE_LIMITED
    assert clocked.refused(user_id="omar", priority=Priority.BATCH) is None, "another tenant has limits of its own"
    clocked.now = NOW + MINUTE_MS + 1000
    assert clocked.refused() is None


def test_other_workers_partitions_count_by_their_last_window_and_own_ones_once() -> None:
    clocked = Clocked()
    clocked.figures.add(window(partition=0, requests=50))  # counted by this worker itself
    assert clocked.refused() is None
    clocked.figures.add(window(partition=2, requests=6))
    clocked.figures.add(window(partition=2, requests=9, ago_ms=MINUTE_MS))  # the minute before
    clocked.figures.add(window(partition=3, requests=1, revision=1))
    assert clocked.figures.others_minute("acme").requests == 7
    clocked.tenants.count("acme", 0, requests=2)
    assert clocked.refused() is None
    clocked.figures.add(window(partition=3, requests=2, revision=2))
    clocked.figures.add(window(partition=3, requests=0, revision=1))  # read again
    clocked.tenants.count("acme", 0, requests=1)
    assert clocked.refused() is ErrorCode.RATE_LIMITED
    clocked.now += 3 * MINUTE_MS
    assert clocked.refused() is None


def test_a_worker_has_its_share_of_the_limit_whatever_others_use() -> None:
    clocked = Clocked()
    clocked.figures.add(window(partition=7, requests=1000))
    for _ in range(3):  # of a limit of 10, by 2 of 8 partitions
        assert clocked.refused() is None
        clocked.tenants.count("acme", 0, requests=1)
    assert clocked.refused() is ErrorCode.RATE_LIMITED


def test_two_workers_settle_at_the_limit() -> None:
    """Each asks for more than the limit all the time; each window is published at its end."""
    now = NOW
    policy = Policy(tenants={"acme": TenantRule(requests_per_min=100)})

    def worker_of(number: int) -> Tenants:
        return Tenants(policy, TenantFigures(lambda: now, lambda: {number}, 2))

    workers = [worker_of(number) for number in range(2)]
    request = Request(request_id="r", user_id="acme/nina")
    used = []
    for _ in range(6):
        admitted = [0, 0]
        for _ in range(60):
            for number, worker in enumerate(workers):
                for _ in range(3):
                    if worker.refusal(request, {"default"}, is_adapter=False) is None:
                        worker.count("acme", number, requests=1)
                        admitted[number] += 1
            now += 1000
        for number, count in enumerate(admitted):
            published = window(partition=number, ago_ms=NOW - now, requests=count)
            for worker in workers:
                worker.figures.add(published)
        used.append(sum(admitted))
    assert used[0] == 200
    assert all(90 <= total <= 110 for total in used[2:]), used


def test_tokens_of_prompt_and_answer_count() -> None:
    clocked = Clocked()
    clocked.tenants.count("acme", 0, tokens=400)  # more than this worker's share
    clocked.figures.add(window(partition=7, prompt_tokens=500, completion_tokens=99))
    assert clocked.refused() is None
    clocked.tenants.count("acme", 0, tokens=1)
    assert clocked.refused() is ErrorCode.RATE_LIMITED


def test_a_budget_counts_the_month_and_what_is_not_published_yet_once() -> None:
    clocked = Clocked()
    clocked.figures.add(window(partition=0, ago_ms=86_400_000, cost=3.0))
    clocked.figures.add(window(partition=5, ago_ms=40 * 86_400_000, cost=100.0))  # of an earlier month
    clocked.tenants.count("acme", 0, cost=1.5)
    assert clocked.figures.cost_of_month("acme") == 4.5
    assert clocked.refused() is None
    clocked.now += MINUTE_MS
    clocked.tenants.count("acme", 0, cost=0.5)
    assert clocked.refused() is ErrorCode.RATE_LIMITED
    clocked.figures.add(window(partition=0, ago_ms=-MINUTE_MS, cost=1.5))
    assert clocked.figures.cost_of_month("acme") == 5.0
    clocked.now += 31 * 86_400_000
    assert clocked.figures.cost_of_month("acme") == 0.0


def test_a_month_of_windows_is_a_sum_and_not_a_list() -> None:
    clocked = Clocked()
    for minute in range(3000, 0, -1):
        clocked.figures.add(window(partition=0, ago_ms=minute * MINUTE_MS, cost=0.001))
    assert clocked.figures.cost_of_month("acme") == pytest.approx(3.0)
    assert len(clocked.figures._tenants["acme"].recent[0]) <= 62


def test_a_changed_file_counts_from_now_on() -> None:
    clocked = Clocked()
    clocked.tenants.use(Policy(tenants={"acme": TenantRule(requests_per_min=0)}))
    assert clocked.refused(model="large") is ErrorCode.RATE_LIMITED


def test_counts_without_quotas_are_not_kept() -> None:
    clocked = Clocked(acme=TenantRule(models=("default",)))
    clocked.tenants.count("acme", 0, requests=5)
    assert clocked.figures.own_minute("acme").requests == 0


def test_the_month_begins_in_utc() -> None:
    assert month_start(1_767_225_600_000) == 1_767_225_600_000  # 2026-01-01
    assert month_start(1_767_225_599_999) == 1_764_547_200_000  # 2025-12-01


def test_budgets_are_those_of_named_tenants_with_one() -> None:
    clocked = Clocked(acme=ACME, free=TenantRule(requests_per_min=5), **{"*": TenantRule(cost_per_month=9.0)})
    assert clocked.tenants.budgets() == {"acme": 0.0}
    clocked.figures.count("acme", 0, cost=4.0)
    assert clocked.tenants.budgets() == {"acme": pytest.approx(0.8)}
