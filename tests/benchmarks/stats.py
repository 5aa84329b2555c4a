"""From replies to figures. Times are seconds; a reply that failed counts as one that never came."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from tests.benchmarks.load import Reply

FIRST_TOKEN_TARGET_S = 0.25


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """`goodput` is requests a second whose first token came within 250 ms. Waits that never ended are infinite."""

    requests: int
    failed: int
    first_p50: float
    first_p99: float
    gap_p50: float
    gap_p99: float
    whole_p50: float
    whole_p95: float
    whole_p99: float
    goodput: float
    tokens_per_s: float


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else math.nan


def stats(replies: Sequence[Reply], seconds: float, busy: float) -> Figures:
    """Of loads that were `seconds` long together, and of which the last answers ended after `busy` seconds."""
    waits = [math.inf if reply.failed or reply.first is None else reply.first for reply in replies]
    wholes = [math.inf if reply.failed or reply.whole is None else reply.whole for reply in replies]
    gaps = [gap for reply in replies for gap in reply.gaps]
    good = sum(wait <= FIRST_TOKEN_TARGET_S for wait in waits)
    return Figures(
        requests=len(replies),
        failed=sum(reply.failed for reply in replies),
        first_p50=quantile(waits, 0.5),
        first_p99=quantile(waits, 0.99),
        gap_p50=quantile(gaps, 0.5),
        gap_p99=quantile(gaps, 0.99),
        whole_p50=quantile(wholes, 0.5),
        whole_p95=quantile(wholes, 0.95),
        whole_p99=quantile(wholes, 0.99),
        goodput=good / seconds,
        tokens_per_s=sum(reply.tokens for reply in replies) / busy,
    )
