"""The figures of the guard, for each scrape."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric

from app.features.guard.guard import GuardStats
from app.features.guard.masking import Masking


def guard_families(masking: Masking | None) -> Iterable[Metric]:
    stats = GuardStats() if masking is None else masking.guard.stats
    yield CounterMetricFamily("parley:guard_searches", "Searches for private values.", stats.searches.count)
    yield CounterMetricFamily("parley:guard_failures", "Such searches without a verdict.", stats.searches.failures)
    yield CounterMetricFamily("parley:guard_seconds", "Seconds that these searches took.", stats.searches.seconds)
    yield CounterMetricFamily("parley:guard_refused", "New requests for which the guard had no time.", stats.refused)
    yield CounterMetricFamily("parley:guard_judgements", "Judgements of prompts and answers.", stats.judgements.count)
    yield CounterMetricFamily(
        "parley:guard_judgement_failures", "Such judgements without a verdict.", stats.judgements.failures
    )
    yield CounterMetricFamily(
        "parley:guard_judgement_seconds", "Seconds that these judgements took.", stats.judgements.seconds
    )
    verdicts = CounterMetricFamily(
        "parley:guard_verdicts", "Judgements that found a category.", labels=["category", "action"]
    )
    for (category, action), count in stats.verdicts.items():
        verdicts.add_metric([category, action], count)
    yield verdicts
