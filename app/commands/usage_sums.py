"""Sums of usage windows over all partitions; the newest revision of each counts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import groupby
from typing import Any

from msgspec.structs import asdict, replace

from app.commands.hits_view import when
from app.process.printable import printable
from app.wire.usage import Latencies, UsageWindow

_LABELS = ("window_start", "window_ms", "tenant", "model", "route", "experiment", "arm")
_COUNTS = (
    *("requests", "late", "prompt_tokens", "completion_tokens", "cached_tokens"),
    *("cached_requests", "saved_tokens", "cost"),
)


def merged(windows: Iterable[UsageWindow]) -> list[UsageWindow]:
    """One window of each tenant, model and route, over all partitions; ordered by time, then by these."""
    newest: dict[tuple[Any, ...], UsageWindow] = {}
    for window in windows:
        key = (*_labels(window), window.partition)
        if key not in newest or newest[key].revision <= window.revision:
            newest[key] = window
    ordered = [window for _, window in sorted(newest.items())]
    return [reduce(_sum, of_all) for _, of_all in groupby(ordered, _labels)]


def _labels(window: UsageWindow) -> tuple[Any, ...]:
    return tuple(getattr(window, name) for name in _LABELS)


def _sum(one: UsageWindow, other: UsageWindow) -> UsageWindow:
    return replace(
        one,
        **{name: getattr(one, name) + getattr(other, name) for name in _COUNTS},
        first_token_ms=_both(one.first_token_ms, other.first_token_ms),
        duration_ms=_both(one.duration_ms, other.duration_ms),
    )


def _cost_per_1k(window: UsageWindow) -> float:
    tokens = window.prompt_tokens + window.completion_tokens
    return 1000 * window.cost / tokens if tokens else 0.0


def as_dict(window: UsageWindow) -> dict[str, Any]:
    fields = asdict(window)
    return {
        **{name: fields[name] for name in (*_LABELS, *_COUNTS)},
        "cost": round(window.cost, 9),
        "cost_per_1k": round(_cost_per_1k(window), 9),
        "first_token_ms": _latency(window.first_token_ms),
        "duration_ms": _latency(window.duration_ms),
    }


def cells(window: UsageWindow) -> list[str]:
    numbers = (window.requests, window.prompt_tokens, window.cached_tokens, window.completion_tokens)
    return [
        when(window.window_start),
        printable(window.tenant),
        printable(window.model),
        printable(window.route),
        *map(str, numbers),
        f"{window.cost:.4f}",
        f"{_cost_per_1k(window):.4f}",
        _quantiles(window.first_token_ms),
        _quantiles(window.duration_ms),
    ]


def quantile(latencies: Latencies, share: float) -> int | None:
    """Upper bound of the bucket with the quantile, at most the maximum; None if nothing was measured."""
    if not latencies.count:
        return None
    counted = 0
    for bound, count in zip(latencies.bounds, latencies.buckets, strict=False):
        counted += count
        if counted >= share * latencies.count:
            return min(bound, latencies.max)
    return latencies.max


def _both(one: Latencies, other: Latencies) -> Latencies:
    if not one.count or not other.count:
        return one if one.count else other
    buckets = tuple(a + b for a, b in zip(one.buckets, other.buckets, strict=True))
    return Latencies(one.count + other.count, one.sum + other.sum, max(one.max, other.max), one.bounds, buckets)


def _latency(latencies: Latencies) -> dict[str, int | None]:
    mean = round(latencies.sum / latencies.count) if latencies.count else None
    return {"mean": mean, "p50": quantile(latencies, 0.5), "p95": quantile(latencies, 0.95), "max": latencies.max}


def _quantiles(latencies: Latencies) -> str:
    """p50 / p95, as upper bounds in milliseconds."""
    if not latencies.count:
        return "-"
    return f"≤{quantile(latencies, 0.5)} / ≤{quantile(latencies, 0.95)} ms"
