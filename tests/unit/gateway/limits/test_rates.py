"""What users and tenants may ask."""

from __future__ import annotations

from typing import Any

import pytest

from app.gateway.auth.identity import Identity
from app.gateway.errors import ApiError
from app.gateway.limits.backlog import Backlog
from app.gateway.limits.rates import Limits
from app.gateway.metrics import Metrics
from app.gateway.sharing.admission import Admission
from app.gateway.sharing.directory import Directory
from app.gateway.sharing.links import Links
from app.gateway.sharing.trust import Trust
from app.settings import Settings
from app.wire.ids import tenant_of

NINA, OMAR, LENA = Identity("nina", "acme"), Identity("omar", "acme"), Identity("lena", "other")


def limits(**values: Any) -> Limits:
    return Limits(Settings(_env_file=None, **values), Metrics())


def admission(**values: Any) -> Admission:
    """Of a gateway that shares nothing."""
    settings = Settings(_env_file=None, **values)
    return Admission(limits(**values), Backlog(settings, 1), Directory(1), Links(Trust("", ()), None, Metrics()))


async def test_the_users_of_a_tenant_share_its_requests() -> None:
    asks = admission(gateway_tenant_requests_per_min=3)
    await asks.admit(NINA, 2)
    await asks.admit(OMAR, 1)
    with pytest.raises(ApiError) as refused:
        await asks.admit(OMAR, 1)
    assert refused.value.status == 429
    assert 15 < (refused.value.retry_after_s or 0) <= 20
    await asks.admit(LENA, 1)
    await asks.admit(Identity("acme"), 1)


async def test_what_is_answered_to_one_counts_for_the_whole_tenant() -> None:
    asks = admission(gateway_tenant_tokens_per_min=100)
    asks.count_tokens(NINA.user_id, 150)
    for one in (NINA, OMAR):
        with pytest.raises(ApiError):
            await asks.admit(one, 1)
    await asks.admit(LENA, 1)


async def test_a_refused_request_takes_nothing_from_user_and_tenant() -> None:
    asks = admission(gateway_requests_per_min=2, gateway_tenant_requests_per_min=3)
    await asks.admit(NINA, 1)
    for _ in range(5):
        with pytest.raises(ApiError):
            await asks.admit(NINA, 2)
    await asks.admit(OMAR, 2)
    for _ in range(5):
        with pytest.raises(ApiError, match="of this tenant"):
            await asks.admit(NINA, 1)


def test_a_streams_place_is_free_again_when_it_is_closed() -> None:
    asks = limits(gateway_streams=1)
    asks.open_stream(NINA)
    with pytest.raises(ApiError):
        asks.open_stream(NINA)
    asks.open_stream(OMAR)
    asks.close_stream(NINA)
    asks.open_stream(NINA)


@pytest.mark.parametrize("identity", [NINA, Identity("nina"), Identity("a/b"), Identity("a/b", "acme")])
def test_the_tenant_can_be_told_from_the_id_on_kafka(identity: Identity) -> None:
    assert tenant_of(identity.user_id) == identity.tenant


def test_the_users_of_a_tenant_share_its_look_ups_and_streams() -> None:
    asks = limits(gateway_tenant_requests_per_min=2, gateway_tenant_streams=2)
    for user in (NINA, OMAR):
        asks.look(user)
        asks.open_stream(user)
    for one in (asks.look, asks.open_stream):
        with pytest.raises(ApiError, match="of this tenant"):
            one(NINA)
        one(LENA)
    asks.close_stream(OMAR)
    asks.open_stream(NINA)


def test_erasures_are_few_a_minute() -> None:
    asks = limits(gateway_erasures_per_min=2)
    asks.erase(NINA)
    asks.erase(NINA)
    with pytest.raises(ApiError, match="erasures"):
        asks.erase(NINA)
    asks.erase(OMAR)


def test_a_keys_websockets_are_bounded() -> None:
    asks = limits(gateway_sockets=1)
    with asks.socket("acme/*"):
        with pytest.raises(ApiError), asks.socket("acme/*"):
            pass
        with asks.socket("nina"):
            pass
    with asks.socket("acme/*"):
        pass
