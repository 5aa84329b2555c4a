"""Limits per user."""

from __future__ import annotations

import pytest

from app.gateway.errors import ApiError
from app.gateway.limits.buckets import Buckets


def test_a_user_gets_a_minutes_worth_at_once_and_then_a_time_to_wait() -> None:
    buckets = Buckets(3, "requests")
    for _ in range(3):
        buckets.check("nina")
        buckets.spend("nina", 1)
    with pytest.raises(ApiError) as refused:
        buckets.check("nina")
    assert refused.value.status == 429
    assert 15 < (refused.value.retry_after_s or 0) <= 20
    assert 15 < int(refused.value.response().headers["retry-after"]) <= 21
    buckets.check("omar")


def test_what_was_used_already_may_lead_below_nothing() -> None:
    buckets = Buckets(60, "tokens")
    buckets.spend("nina", 120)
    with pytest.raises(ApiError) as refused:
        buckets.check("nina")
    assert 55 < (refused.value.retry_after_s or 0) <= 61


def test_nothing_is_no_limit() -> None:
    buckets = Buckets(0, "requests")
    buckets.spend("nina", 1000)
    buckets.check("nina", 1000)
