"""Metrics that were renamed are exported under both names for one release."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

FORMER_NAMES = {
    "parley:commit_seconds": "parley:finish_seconds",
    "parley:commits": "parley:finishes",
    "parley:index_backlog": "parley:history_backlog",
    "parley:index_lag_seconds": "parley:history_lag_seconds",
    "parley:index_rows": "parley:history_rows",
    "parley:index_rejected": "parley:history_rejected",
    "parley:index_retries": "parley:history_retries",
}
"""From 0.2.0 on the former names are deprecated; they go with the release after it."""


class RegistryWithFormerNames(CollectorRegistry):
    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            yield metric
            if (former := FORMER_NAMES.get(metric.name)) is not None:
                yield _renamed(metric, former)


def _renamed(metric: Metric, name: str) -> Metric:
    renamed = Metric(name, f"Former name of {metric.name}.", metric.type)
    renamed.samples = [s._replace(name=name + s.name.removeprefix(metric.name)) for s in metric.samples]
    return renamed
