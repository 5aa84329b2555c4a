"""The budgets of tenants, for each scrape."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from app.features.quota.stage import Quota


def budget_families(quota: Quota | None) -> Iterable[Metric]:
    budgets = {} if quota is None else quota.tenants.budgets()
    family = GaugeMetricFamily(
        "parley:tenant_budget_used_ratio", "Part of the tenant's budget of this month that is used.", labels=["tenant"]
    )
    for tenant, used in budgets.items():
        family.add_metric([tenant], used)
    yield family
