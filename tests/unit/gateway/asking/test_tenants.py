"""The policy's limits of tenants, as a gateway checks them before it sends."""

from __future__ import annotations

import pytest

from app.gateway.asking.models import ServedModels
from app.gateway.asking.tenants import TenantLimits
from app.gateway.edge.errors import ApiError
from app.policy.file import Policy, TenantRule
from app.settings import Settings
from app.wire.request import Request
from models.interface.generation import Usage


def limits(**rule: int) -> TenantLimits:
    policy = Policy(tenants={"acme": TenantRule(**rule)})
    return TenantLimits(Settings(_env_file=None, partitions=1), policy, ServedModels(["demo"]), 1, lambda: [0])


def asked(user_id: str, number: int = 0) -> Request:
    return Request(user_id=user_id, request_id=f"{user_id[-4:]}-{number}", prompt="hello")


def test_a_tenants_users_share_its_requests_and_a_burst_is_refused_before_any_answer_ends() -> None:
    tenants = limits(requests_per_min=4)
    for number, user in enumerate(("acme/nina", "acme/omar", "acme/nina", "acme/omar")):
        tenants.check(asked(user, number))
        tenants.admitted([asked(user, number)])
    with pytest.raises(ApiError) as refused:
        tenants.check(asked("acme/lena"))
    assert (refused.value.status, refused.value.retry_after_s) == (429, 60)
    tenants.check(asked("other/nina"))
    tenants.check(asked("acme"))


def test_a_request_counts_once_whichever_gateway_has_sent_it() -> None:
    tenants = limits(requests_per_min=2)
    tenants.admitted([asked("acme/nina")])
    tenants.answered("acme/nina", None, is_counted=True)
    tenants.check(asked("acme/nina"))
    tenants.answered("acme/omar", None, is_counted=False)
    with pytest.raises(ApiError):
        tenants.check(asked("acme/nina"))


def test_what_is_answered_to_one_user_counts_for_the_whole_tenant() -> None:
    tenants = limits(tokens_per_min=100)
    tenants.answered("acme/nina", Usage(50, 60), is_counted=True)
    for user in ("acme/nina", "acme/omar"):
        with pytest.raises(ApiError, match="its 100 tokens per minute"):
            tenants.check(asked(user))
    tenants.check(asked("other/lena"))
