"""The figures of recall, for each scrape."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric

from app.features.recall.related import RecallStats
from app.features.recall.stage import Recall


def recall_families(recall: Recall | None) -> Iterable[Metric]:
    stats = RecallStats() if recall is None else recall.stats
    searches = CounterMetricFamily("parley:recall", "Searches for related older turns.", labels=["outcome"])
    for outcome, count in stats.outcomes.items():
        searches.add_metric([outcome], count)
    yield searches
    yield CounterMetricFamily("parley:recall_seconds", "Seconds that these searches took.", stats.seconds)
