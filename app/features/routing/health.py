"""Which models keep failing, and are left out for a while.

    HEALTHY --`failures` within `window_s`--> OUT --after `retry_s`--> PROBED --an answer begins--> HEALTHY
                                               ^--------- a failure -----'

A model that is out gets one request after `retry_s`, the probe; the others still go to the next model of the chain.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from app.policy.file import Fallback

log = logging.getLogger(__name__)


class HealthState(enum.Enum):
    HEALTHY = "healthy"
    OUT = "out"
    PROBED = "probed"


@dataclass(slots=True)
class _Health:
    state: HealthState = HealthState.HEALTHY
    failures: deque[float] = field(default_factory=deque)
    out_since: float = 0.0


class ModelHealth:
    """By the names of models. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[str, _Health] = {}

    def admits(self, model: str, fallback: Fallback) -> bool:
        """Whether the model gets the next request; the probe of a model that is out counts as begun."""
        health = self._of.get(model)
        if health is None or health.state is HealthState.HEALTHY:
            return True
        # A probe that never ended must not leave the model out for ever.
        if self._clock() - health.out_since < fallback.retry_s:
            return False
        health.state, health.out_since = HealthState.PROBED, self._clock()
        return True

    def failed(self, model: str, fallback: Fallback) -> None:
        health = self._of.setdefault(model, _Health())
        now = self._clock()
        health.failures.append(now)
        while health.failures[0] < now - fallback.window_s:
            health.failures.popleft()
        if health.state is HealthState.PROBED or len(health.failures) >= fallback.failures:
            if health.state is HealthState.HEALTHY:
                log.warning("model %s is left out for %g s: it keeps failing", model, fallback.retry_s)
            health.state, health.out_since = HealthState.OUT, now

    def answered(self, model: str) -> None:
        """The model has begun an answer."""
        health = self._of.get(model)
        if health is not None and health.state is HealthState.PROBED:
            log.warning("model %s answers again", model)
            del self._of[model]
