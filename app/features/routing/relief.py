"""A route that is on while the worker is overloaded, with hysteresis.

OFF --when holds--> RISING --for when.for_s--> ON --until holds--> FALLING --for until.for_s--> OFF
^------ else --------'                        ^------ else --------'
"""

from __future__ import annotations

import enum

from app.features.routing.load_figures import Load
from app.policy.file import Route


class ReliefState(enum.Enum):
    OFF = "off"
    RISING = "rising"
    ON = "on"
    FALLING = "falling"


class Relief:
    def __init__(self, route: Route) -> None:
        self.state = ReliefState.OFF
        self._route = route
        self._since = 0.0

    @property
    def is_on(self) -> bool:
        return self.state in {ReliefState.ON, ReliefState.FALLING}

    def update(self, load: Load, now: float) -> None:
        """`now` is monotonic, in seconds."""
        if self.is_on:
            until = self._route.until
            held_s = until.for_s if until is not None else 0.0
            self._step(self._is_over(load), ReliefState.ON, ReliefState.FALLING, ReliefState.OFF, held_s, now)
        else:
            held_s = self._route.when.for_s
            self._step(self._is_due(load), ReliefState.OFF, ReliefState.RISING, ReliefState.ON, held_s, now)

    def _step(
        self, holds: bool, rest: ReliefState, moving: ReliefState, done: ReliefState, held_s: float, now: float
    ) -> None:
        if not holds:
            self.state = rest
            return
        if self.state is rest:
            self.state, self._since = moving, now
        if now - self._since >= held_s:
            self.state = done

    def _is_due(self, load: Load) -> bool:
        when = self._route.when
        p95, queue = when.first_token_p95_ms_above, when.queue_above
        return (p95 is None or load.first_token_p95_ms > p95) and (queue is None or load.queue > queue)

    def _is_over(self, load: Load) -> bool:
        until = self._route.until
        if until is None:
            return not self._is_due(load)
        p95, queue = until.first_token_p95_ms_below, until.queue_below
        return (p95 is None or load.first_token_p95_ms < p95) and (queue is None or load.queue < queue)
