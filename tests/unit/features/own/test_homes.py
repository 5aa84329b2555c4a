"""Which deployment serves a tenant."""

from __future__ import annotations

import pytest

from app.features.own.homes import Homes
from app.features.own.tables import homes_of
from app.policy.file import Policy, TenantRule


@pytest.mark.parametrize(
    ("region", "group", "tenant", "is_refused"),
    [
        ("eu", "", "acme", False),
        ("us", "", "acme", True),
        ("", "", "acme", True),
        ("us", "big", "big", False),
        ("us", "", "big", True),
        ("us", "big", "other", True),
        ("us", "", "other", False),
    ],
)
def test_tenants_are_served_by_their_region_and_group_only(
    region: str, group: str, tenant: str, is_refused: bool
) -> None:
    rules = {
        "acme": TenantRule(region="eu"),
        "big": TenantRule(region="us", group="big"),
        "*": TenantRule(region="us", group=""),
    }
    homes = Homes(homes_of(Policy(tenants=rules), {"region": region, "group": group}))
    assert (homes.refusal(tenant) is not None) == is_refused
