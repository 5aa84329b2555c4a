"""Sums of usage windows over all partitions; the newest revision of each counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.commands.hits_view import when
from app.process.printable import printable
from app.wire.usage import Latencies, UsageWindow

_NOTHING = Latencies(0, 0, 0)


@dataclass(slots=True)
class Sum:
    """One window of one tenant, model and route, over all partitions."""

    window_start: int
    window_ms: int
    tenant: str
    model: str
    route: str = ""
    experiment: str = ""
    arm: str = ""
    requests: int = 0
    late: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cached_requests: int = 0
    saved_tokens: int = 0
    cost: float = 0.0
    first_token: Latencies = _NOTHING
    duration: Latencies = _NOTHING

    def add(self, window: UsageWindow) -> None:
        self.requests += window.requests
        self.late += window.late
        self.prompt_tokens += window.prompt_tokens
        self.completion_tokens += window.completion_tokens
        self.cached_tokens += window.cached_tokens
        self.cached_requests += window.cached_requests
        self.saved_tokens += window.saved_tokens
        self.cost += window.cost
        self.first_token = _both(self.first_token, window.first_token_ms)
        self.duration = _both(self.duration, window.duration_ms)

    @property
    def cost_per_1k(self) -> float:
        tokens = self.prompt_tokens + self.completion_tokens
        return 1000 * self.cost / tokens if tokens else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "window_start": self.window_start,
            "window_ms": self.window_ms,
            "tenant": self.tenant,
            "model": self.model,
            "route": self.route,
            "experiment": self.experiment,
            "arm": self.arm,
            "requests": self.requests,
            "late": self.late,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "cached_requests": self.cached_requests,
            "saved_tokens": self.saved_tokens,
            "cost": round(self.cost, 9),
            "cost_per_1k": round(self.cost_per_1k, 9),
            "first_token_ms": _latency(self.first_token),
            "duration_ms": _latency(self.duration),
        }

    def cells(self) -> list[str]:
        numbers = (self.requests, self.prompt_tokens, self.cached_tokens, self.completion_tokens)
        return [
            when(self.window_start),
            printable(self.tenant),
            printable(self.model),
            printable(self.route),
            *map(str, numbers),
            f"{self.cost:.4f}",
            f"{self.cost_per_1k:.4f}",
            _quantiles(self.first_token),
            _quantiles(self.duration),
        ]


def merged(windows: Iterable[UsageWindow]) -> list[Sum]:
    """Ordered by time, then tenant, model and route."""
    newest: dict[tuple[int, int, str, str, str, str, str, int], UsageWindow] = {}
    for window in windows:
        window_key = (window.window_start, window.window_ms, window.tenant, window.model)
        key = (*window_key, window.route, window.experiment, window.arm, window.partition)
        if key not in newest or newest[key].revision <= window.revision:
            newest[key] = window
    sums: dict[tuple[int, int, str, str, str, str, str], Sum] = {}
    for key, window in sorted(newest.items()):
        sums.setdefault(key[:7], Sum(*key[:7])).add(window)
    return list(sums.values())


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
