from __future__ import annotations

import numpy as np
import pytest

from app.commands.arms import ArmSummary, bootstrapped, wilson


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"), [(0, 10, 0.0, 0.278), (1, 10, 0.018, 0.404), (50, 100, 0.404, 0.596)]
)
def test_the_interval_of_a_share_is_wilsons(hits: int, of: int, low: float, high: float) -> None:
    found = wilson(hits, of)
    assert found is not None
    assert found.value == hits / of
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.001)


def test_a_bootstrapped_interval_has_the_figure_in_it_and_narrows_with_more_values() -> None:
    values = np.random.default_rng(3).exponential(100, 2000).tolist()
    few, many = (bootstrapped(values[:count], lambda one: np.mean(one, axis=-1)) for count in (50, 2000))
    assert few is not None
    assert many is not None
    assert few.low < few.value < few.high
    assert many.high - many.low < (few.high - few.low) / 3
    assert many.low < 100 < many.high
    assert bootstrapped(values[:50], lambda one: np.mean(one, axis=-1)) == few, "the same values give the same interval"


def test_an_arm_without_answers_has_no_latencies() -> None:
    figures = ArmSummary("new", errors=2, users={"nina"}).figures
    assert (figures["requests"], figures["errors"].value, figures["users"]) == (2, 1.0, 1)
    assert figures["first_token_p95_ms"] is None
    assert wilson(0, 0) is None


@pytest.mark.parametrize("of", [1, 7, 11, 100, 1003])
def test_a_share_of_none_or_all_has_an_interval_that_begins_or_ends_exactly_there(of: int) -> None:
    none, every = wilson(0, of), wilson(of, of)
    assert none is not None
    assert every is not None
    assert (none.low, every.high) == (0.0, 1.0)
    assert 0.0 < none.high == pytest.approx(1.0 - every.low)
