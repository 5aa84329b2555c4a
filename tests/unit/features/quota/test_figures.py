"""What tenants have used: when partitions move between workers, and over weeks and many names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from app.features.quota import figures as tenant_figures
from app.features.quota.figures import MINUTE_MS, REVISED_MS, TenantFigures
from app.features.quota.tenants import Tenants
from app.policy.file import Policy, TenantRule
from app.wire.request import Request
from app.wire.usage import Latencies, UsageWindow

BEGIN = 1_790_000_000_000 - 1_790_000_000_000 % MINUTE_MS
PARTITIONS = 8
ALL = frozenset(range(PARTITIONS))
LOW, HIGH = frozenset(range(4)), frozenset(range(4, 8))


def window(tenant: str, partition: int, start: int, requests: int = 1, cost: float = 0.0) -> UsageWindow:
    none = Latencies(0, 0, 0)
    return UsageWindow(
        window_start=start,
        window_ms=MINUTE_MS,
        tenant=tenant,
        model="m@1",
        partition=partition,
        revision=1,
        requests=requests,
        cost=cost,
        first_token_ms=none,
        duration_ms=none,
        created_at=start + MINUTE_MS,
    )


class Fleet:
    """Workers that share the partitions, the windows that they publish 2.5 s after the end, and a tenant that asks on
    every partition in turn.
    """

    def __init__(self, limit: int, **owned: Iterable[int]) -> None:
        self.now = BEGIN
        self._policy = Policy(tenants={"acme": TenantRule(requests_per_min=limit)})
        self.owned = {name: frozenset(partitions) for name, partitions in owned.items()}
        self._workers = {name: self._worker(name) for name in owned}
        self._answered: Counter[tuple[int, int]] = Counter()
        self._published: list[UsageWindow] = []
        self.refused: list[int] = []
        self.admitted: list[int] = []

    def _worker(self, name: str) -> Tenants:
        figures = TenantFigures(lambda: self.now, lambda: self.owned[name], PARTITIONS)
        return Tenants(self._policy, figures)

    def restart(self, name: str) -> None:
        """As a new process, which reads `usage` from the beginning."""
        self._workers[name] = self._worker(name)
        for published in self._published:
            self._workers[name].figures.add(published)

    def run(self, seconds: int, per_minute: int) -> None:
        pause_ms = MINUTE_MS // per_minute
        for _ in range(seconds * 1000 // pause_ms):
            self.now += pause_ms
            if (self.now - 2500) % MINUTE_MS < pause_ms:
                self._publish((self.now - 2500) // MINUTE_MS - 1)
            self._ask(self.now // pause_ms % PARTITIONS)

    def _ask(self, partition: int) -> None:
        worker = next(one for name, one in self._workers.items() if partition in self.owned[name])
        request = Request(request_id="r", user_id="acme/nina", prompt="x")
        if worker.refusal(request, {"default"}, is_adapter=False) is not None:
            self.refused.append(self.now)
            return
        worker.count("acme", partition, requests=1)
        self._answered[self.now // MINUTE_MS, partition] += 1
        self.admitted.append(self.now)

    def _publish(self, minute: int) -> None:
        for partition in ALL:
            if count := self._answered[minute, partition]:
                found = window("acme", partition, minute * MINUTE_MS, count)
                self._published.append(found)
                for worker in self._workers.values():
                    worker.figures.add(found)


@pytest.mark.parametrize("per_minute", [40, 50])
def test_a_tenant_below_its_limit_is_not_refused_while_workers_restart_in_turn(per_minute: int) -> None:
    fleet = Fleet(60, a=LOW, b=HIGH)
    fleet.run(180, per_minute)
    for leaver, stayer in (("b", "a"), ("a", "b")):
        fleet.owned |= {leaver: frozenset(), stayer: ALL}
        fleet.run(60, per_minute)
        fleet.restart(leaver)
        fleet.owned |= {"a": LOW, "b": HIGH}
        fleet.run(150, per_minute)
    assert fleet.refused == []


def test_a_tenant_above_its_limit_gets_no_second_minute_from_a_rolling_restart() -> None:
    fleet = Fleet(60, a=LOW, b=HIGH)
    fleet.run(240, 120)
    for leaver, stayer in (("b", "a"), ("a", "b")):
        fleet.owned |= {leaver: frozenset(), stayer: ALL}
        fleet.run(20, 120)
        fleet.restart(leaver)
        fleet.owned |= {"a": LOW, "b": HIGH}
        fleet.run(120, 120)
    minutes = Counter(at // MINUTE_MS for at in fleet.admitted if at > BEGIN + 120_000)
    assert max(minutes.values()) <= 90, minutes


class Moving:
    """The figures of one process whose time and partitions a test moves."""

    def __init__(self, *, reads_back_ms: int = 0) -> None:
        self.now = BEGIN
        self.owned = LOW
        self.figures = TenantFigures(lambda: self.now, lambda: self.owned, PARTITIONS, reads_back_ms=reads_back_ms)
        self.figures.own_minute("")

    def sweep(self) -> None:
        """Some are swept with each question."""
        for _ in range(10 * len(self.figures._tenants) + 10):
            self.figures.own_minute("")


def test_a_partition_that_comes_counts_by_usage_for_what_is_missing_of_its_minute() -> None:
    moving = Moving()
    moving.now += MINUTE_MS
    moving.figures.add(window("acme", 7, BEGIN - MINUTE_MS, requests=60))
    assert moving.figures.others_minute("acme").requests == 60
    moving.owned = ALL
    assert moving.figures.others_minute("acme").requests == 60
    moving.now += MINUTE_MS // 4
    assert moving.figures.others_minute("acme").requests == 45
    moving.figures.count("acme", 7, requests=15)
    moving.owned = LOW
    assert moving.figures.own_minute("acme").requests == 0
    assert moving.figures.others_minute("acme").requests == 60


def test_a_partition_that_comes_back_is_not_counted_from_before() -> None:
    for reads_back_ms in (0, MINUTE_MS):
        moving = Moving(reads_back_ms=reads_back_ms)
        moving.figures.count("acme", 0, requests=5)
        moving.owned = HIGH
        assert moving.figures.own_minute("acme").requests == 0
        moving.owned = LOW
        moving.figures.count("acme", 0, requests=2)
        assert moving.figures.own_minute("acme").requests == 2


def test_what_reads_the_last_minute_itself_does_not_add_that_of_usage() -> None:
    moving = Moving(reads_back_ms=MINUTE_MS)
    moving.figures.add(window("acme", 7, BEGIN - MINUTE_MS, requests=60))
    moving.owned = ALL
    assert moving.figures.others_minute("acme").requests == 0


def test_figures_of_made_up_names_are_bounded_and_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_figures, "MOST_OTHERS", 50)
    moving = Moving()
    rules = {"acme": TenantRule(requests_per_min=10), "*": TenantRule(requests_per_min=100)}
    tenants = Tenants(Policy(tenants=rules), moving.figures)
    for number in range(2000):
        tenants.count(f"made-up-{number}", 0, requests=1)
        moving.figures.add(window(f"other-{number}", 7, BEGIN))
    assert len(moving.figures._tenants) <= 53
    request = Request(request_id="r", user_id="one-more/nina", prompt="x")
    assert tenants.refusal(request, {"default"}, is_adapter=False) is not None
    request = Request(request_id="r", user_id="acme/nina", prompt="x")
    assert tenants.refusal(request, {"default"}, is_adapter=False) is None, "a tenant that the policy names has its own"
    tenants.count("acme", 0, requests=10)
    assert tenants.refusal(request, {"default"}, is_adapter=False) is not None


def test_figures_leave_memory_after_an_hour_and_costs_with_their_month() -> None:
    moving = Moving()
    moving.figures.add(window("paid", 7, BEGIN, cost=2.0))
    for number in range(1000):
        moving.figures.count(f"counted-{number}", 0, requests=1)
        moving.figures.add(window(f"published-{number}", 7, BEGIN))
    assert len(moving.figures._tenants) == 2001
    moving.now += REVISED_MS + MINUTE_MS
    moving.sweep()
    assert [*moving.figures._tenants] == ["paid"]
    assert moving.figures.cost_of_month("paid") == 2.0
    moving.now += 31 * 24 * REVISED_MS
    moving.sweep()
    assert not moving.figures._tenants


def test_costs_that_nobody_publishes_are_kept_by_day() -> None:
    moving = Moving()
    for _ in range(3 * 24 * 60):
        moving.figures.count("acme", 0, cost=0.5)
        moving.now += MINUTE_MS
    assert moving.figures.cost_of_month("acme") == pytest.approx(3 * 24 * 60 * 0.5)
    assert len(moving.figures._tenants["acme"].own[0].costs) <= 24 * 60 + 20


def test_cost_of_a_partition_that_left_counts_until_it_is_published() -> None:
    moving = Moving()
    moving.figures.count("acme", 0, cost=1.0)
    moving.figures.add(window("acme", 7, BEGIN, cost=4.0))  # of another partition
    assert moving.figures.cost_of_month("acme") == 5.0
    moving.owned = HIGH
    assert moving.figures.cost_of_month("acme") == 5.0
    moving.figures.add(window("acme", 0, BEGIN, cost=1.0))
    assert moving.figures.cost_of_month("acme") == 5.0
