"""Which features are behind the door for plug-ins, with their settings: those of other packages among Parley's own.

Parley's own features decide first who may ask. A feature of another package that chooses an answer comes before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.policy.file import Policy


def tables_of(policy: Policy, here: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """By their names, in their order. `here` are the region and the group of this deployment."""
    own: dict[str, dict[str, Any]] = {"homes": homes_of(policy, here), "user_limit": _limits_of(policy)}
    return {name: table for name, table in own.items() if table} | policy.plugins | {"best_answer": {}}


def homes_of(policy: Policy, here: Mapping[str, str]) -> dict[str, Any]:
    """Empty if no tenant has a home."""
    homes = {
        name: {part: home for part in ("region", "group") if (home := getattr(rule, part)) is not None}
        for name, rule in policy.tenants.items()
    }
    return {"here": dict(here), "homes": homes} if any(homes.values()) else {}


def _limits_of(policy: Policy) -> dict[str, Any]:
    limits = {name: rule.user_requests_per_min for name, rule in policy.tenants.items()}
    return {"limits": limits} if any(limit is not None for limit in limits.values()) else {}
