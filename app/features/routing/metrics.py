"""Which arms have lost their users, for each scrape."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from app.features.routing.stage import Routing


def canary_families(routing: Routing | None) -> Iterable[Metric]:
    states = {} if routing is None else routing.canaries.states
    family = GaugeMetricFamily(
        "parley:canary_out", "1 if the arm of an experiment has lost its users.", labels=["experiment", "arm"]
    )
    for labels, is_out in states.items():
        family.add_metric(list(labels), int(is_out))
    yield family
