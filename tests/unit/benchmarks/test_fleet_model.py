from __future__ import annotations

import pytest

from tests.benchmarks.fleet.costs import Costs
from tests.benchmarks.fleet.model import SEQUENCES, TOKENS, TOKENS_S, USED, need, run

FREE = Costs(
    worker_request_s=0,
    worker_token_s=0,
    worker_idle_share=0,
    broker_request_s=0,
    broker_token_s=0,
    gateway_token_s=0,
    gateway_passed_on_s=0,
)


def test_ten_times_the_workers_need_ten_times_the_processor_time() -> None:
    small, large = need("small", 10, 320, Costs()), need("large", 100, 3200, Costs())
    assert large.requests_s == 10 * small.requests_s
    assert large.worker_cores == pytest.approx(small.worker_cores)
    assert large.gateways == pytest.approx(10 * small.gateways, rel=0.2)


def test_cores_of_a_worker_follow_from_the_cost_of_its_requests_and_tokens() -> None:
    costs = Costs(worker_request_s=0.01, worker_token_s=1e-4, worker_idle_share=0.05)
    requests_s = SEQUENCES * TOKENS_S / TOKENS
    assert need("one", 1, 32, costs).worker_cores == pytest.approx(requests_s * (0.01 + TOKENS * 1e-4) + 0.05)


def test_token_that_is_passed_on_counts_for_all_but_one_gateway() -> None:
    tokens_s = 10 * SEQUENCES * TOKENS_S
    costs = Costs(gateway_token_s=2 * USED / tokens_s, gateway_passed_on_s=2 * USED / tokens_s)
    # 2 gateways and, of n, 2 (1 - 1/n) more: 4 take 3.5, and 3 would take 3.3
    assert need("ten", 10, 0, costs).gateways == 4


def test_free_fleet_is_limited_by_its_engines_and_by_the_size_of_its_group() -> None:
    assert need("few", 10, 320, FREE).breaks_first == "the engines"
    assert "group of 1,000: 5 cells" in need("many", 1000, 0, FREE).breaks_first


def test_every_fleet_has_a_row_of_all_columns() -> None:
    result = run(Costs())
    assert {len(row) for row in result.rows} == {len(result.columns)}
    assert "reckoned" in result.title
