"""The figures of the response cache, for each scrape."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric

from app.features.cache.recordings import CacheStats
from app.features.cache.stage import Cache


def cache_families(cache: Cache | None) -> Iterable[Metric]:
    stats = CacheStats() if cache is None else cache.recordings.stats
    lookups = CounterMetricFamily(
        "parley:response_cache", "Requests that the response cache looked up.", labels=["found"]
    )
    lookups.add_metric(["whole"], stats.hits - stats.joins)
    lookups.add_metric(["running"], stats.joins)
    lookups.add_metric(["nothing"], stats.misses)
    yield lookups
    yield CounterMetricFamily(
        "parley:response_cache_saved_tokens", "Tokens of prompt and answer that it has saved.", stats.saved_tokens
    )
