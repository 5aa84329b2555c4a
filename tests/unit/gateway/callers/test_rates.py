"""What users may ask."""

from __future__ import annotations

import time
from typing import Any

import pytest

from app.gateway.callers.backlog import Backlog
from app.gateway.callers.estimate import Sample
from app.gateway.callers.identity import Identity
from app.gateway.callers.rates import Buckets, RateLimits
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.peers.admission import Admission
from app.gateway.peers.directory import Directory
from app.gateway.peers.link import Links
from app.gateway.peers.trust import Trust
from app.settings import Settings
from app.wire.ids import tenant_of

NINA, OMAR, LENA = Identity("nina", "acme"), Identity("omar", "acme"), Identity("lena", "other")


def limits(**values: Any) -> RateLimits:
    return RateLimits(Settings(_env_file=None, **values), GatewayMetrics())


def admission(backlog: Backlog | None = None, **values: Any) -> Admission:
    """Of a gateway that shares nothing."""
    backlog = backlog or Backlog(Settings(_env_file=None, **values), 1)
    return Admission(limits(**values), backlog, Directory(1), Links(Trust("", ()), None, GatewayMetrics()))


async def test_a_refused_request_takes_nothing_from_its_user() -> None:
    asks = admission(gateway_requests_per_min=2)
    await asks.admit(NINA, 1)
    for _ in range(5):
        with pytest.raises(ApiError):
            await asks.admit(NINA, 2)
    await asks.admit(NINA, 1)


def see_backlog(backlog: Backlog) -> None:
    """1,000 requests are open at the partition, and one a second ends."""
    for at in (-10, 0):
        backlog.estimate.add(Sample(time.monotonic() + at, {0: 1000}, {0: 0}, {0: at + 10}))


async def test_the_user_of_a_backlog_is_refused_and_told_when_to_retry() -> None:
    backlog = Backlog(Settings(_env_file=None, max_in_flight=4, gateway_start_s=30), 1)
    asks = admission(backlog, max_in_flight=4, gateway_start_s=30, gateway_requests_per_min=0)
    await asks.admit(NINA, 800)
    await asks.admit(OMAR, 20, 2)
    see_backlog(backlog)
    assert (backlog.estimate.users(0).open(NINA.user_id), backlog.estimate.users(0).open(OMAR.user_id)) == (800, 2)
    with pytest.raises(ApiError, match=r"in more than 90 s at the earliest, 30 s are allowed") as refused:
        await asks.admit(NINA, 1)
    assert (refused.value.status, refused.value.retry_after_s) == (503, 60)
    await asks.admit(OMAR, 1)
    await asks.admit(LENA, 1)
    for _ in range(3):
        backlog.ended(OMAR.user_id)
    assert backlog.estimate.users(0).open(OMAR.user_id) == 0


async def test_a_backlogs_message_and_retry_after_name_one_wait() -> None:
    backlog = Backlog(Settings(_env_file=None, max_in_flight=4, gateway_start_s=30), 1)
    asks = admission(backlog, gateway_requests_per_min=0)
    await asks.admit(NINA, 43)
    see_backlog(backlog)
    with pytest.raises(ApiError, match=r"in about 40 s at the earliest, 30 s are allowed") as refused:
        await asks.admit(NINA, 1)
    assert refused.value.retry_after_s == pytest.approx(10, abs=1)


def test_a_streams_place_is_free_again_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STREAMS_OF_USER", 1)
    asks = limits()
    asks.open_stream(NINA)
    with pytest.raises(ApiError):
        asks.open_stream(NINA)
    asks.open_stream(OMAR)
    asks.close_stream(NINA)
    asks.open_stream(NINA)


@pytest.mark.parametrize("identity", [NINA, Identity("nina"), Identity("a/b"), Identity("a/b", "acme")])
def test_the_tenant_can_be_told_from_the_id_on_kafka(identity: Identity) -> None:
    assert tenant_of(identity.user_id) == identity.tenant


def test_erasures_are_few_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ERASURES_PER_MIN", 2)
    asks = limits()
    asks.erase(NINA)
    asks.erase(NINA)
    with pytest.raises(ApiError, match="erasures"):
        asks.erase(NINA)
    asks.erase(OMAR)


def test_deletions_of_conversations_are_few_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CONVERSATION_ERASURES_PER_DAY", 2)
    asks = limits()
    for _ in range(2):
        asks.erase_conversation(NINA)
    with pytest.raises(ApiError, match="more than 2 deletions of conversations per day") as refused:
        asks.erase_conversation(NINA)
    assert (refused.value.retry_after_s or 0) > 3600
    asks.erase(NINA)
    asks.erase_conversation(OMAR)


def test_a_keys_websockets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SOCKETS_OF_KEY", 1)
    asks = limits()
    with asks.socket("acme/*"):
        with pytest.raises(ApiError), asks.socket("acme/*"):
            pass
        with asks.socket("nina"):
            pass
    with asks.socket("acme/*"):
        pass


def test_a_key_follows_a_bounded_number_of_answers_whichever_users_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FOLLOWED_BY_KEY", 2)
    asks = limits()
    for user in (NINA, OMAR):
        asks.follow("acme/*", user)
    with pytest.raises(ApiError, match="followed by this key"):
        asks.follow("acme/*", Identity("one-more", "acme"))
    asks.follow("lena", LENA)
    asks.unfollow("acme/*", OMAR)
    asks.follow("acme/*", NINA)


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
