"""Records of `usage`: the answers of one partition in one window, by tenant, model and route.

A revision replaces earlier ones: of all records with the same window, tenant, model, route, experiment, arm and
partition, the one with the highest `revision` counts. A user has one partition, so sums over partitions are sums over
users.
"""

from __future__ import annotations

import msgspec


class Latencies(msgspec.Struct, frozen=True):
    """In milliseconds; `buckets[i]` counts those up to `bounds[i]`, the last bucket those above all bounds."""

    count: int
    sum: int
    max: int
    bounds: tuple[int, ...] = ()
    buckets: tuple[int, ...] = ()


class UsageWindow(msgspec.Struct, frozen=True, kw_only=True):
    """`late` of the `requests` belong to earlier windows, which were already final when they arrived.

    `cached_requests` were answered from the response cache, with `saved_tokens` of prompt and answer that no model
    computed; they cost nothing. `tenant` is empty if requests name none. `cost_per_1k` is the cost of 1,000 tokens of
    prompt and answer.
    """

    window_start: int
    window_ms: int
    tenant: str
    model: str
    partition: int
    revision: int
    requests: int
    late: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    cost_per_1k: float = 0.0
    first_token_ms: Latencies
    duration_ms: Latencies
    created_at: int
    route: str = ""
    experiment: str = ""
    arm: str = ""
    cached_requests: int = 0
    saved_tokens: int = 0
