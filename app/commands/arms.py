"""The arms of an experiment, compared by their answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_RESAMPLES = 1000
_Z = 1.96
"""Of a normal distribution, for 95 %."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:,.4g} ({self.low:,.4g} to {self.high:,.4g})"


@dataclass(slots=True)
class ArmSummary:
    """`first_tokens` and `durations` are in milliseconds."""

    arm: str
    answers: int = 0
    errors: int = 0
    users: set[str] = field(default_factory=set)
    first_tokens: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    @property
    def figures(self) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "users": len(self.users),
            "requests": self.answers + self.errors,
            "errors": wilson(self.errors, self.answers + self.errors),
            "first_token_p50_ms": bootstrapped(self.first_tokens, _quantile(0.5)),
            "first_token_p95_ms": bootstrapped(self.first_tokens, _quantile(0.95)),
            "duration_p50_ms": bootstrapped(self.durations, _quantile(0.5)),
            "answer_tokens": bootstrapped(self.lengths, _mean),
            "cost": bootstrapped(self.costs, _mean),
        }


def wilson(hits: int, of: int) -> Interval | None:
    """A share with the interval of Wilson (1927), which is right for few hits, too; None without any."""
    if not of:
        return None
    share = hits / of
    middle = share + _Z**2 / (2 * of)
    spread = _Z * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    scale = 1 + _Z**2 / of
    # At both ends the interval touches the end, but for the last digits of a float.
    least = (middle - spread) / scale if hits else 0.0
    most = (middle + spread) / scale if hits < of else 1.0
    return Interval(share, least, most)


def bootstrapped(values: Sequence[float], figure: Callable[[Any], Any]) -> Interval | None:
    """A figure of `values`, with the percentile interval of the bootstrap; None without values.

    `figure` maps values [..., n] to figures [...].
    """
    if not values:
        return None
    given = np.asarray(values, dtype=float)
    samples = np.random.default_rng(1).choice(given, (_RESAMPLES, len(given)))
    low, high = np.quantile(figure(samples), (0.025, 0.975))
    return Interval(float(figure(given)), float(low), float(high))


def _quantile(share: float) -> Callable[[Any], Any]:
    return lambda values: np.quantile(values, share, axis=-1)


def _mean(values: Any) -> Any:
    return np.mean(values, axis=-1)
