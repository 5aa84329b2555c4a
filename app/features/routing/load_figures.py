"""The load of this worker, as routes see it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakSet

from app.delivery.inflight import InFlight
from app.delivery.observer import Observer

_WINDOW_MS = 10_000
_MOST = 2000


@dataclass(frozen=True, slots=True)
class Load:
    """`first_token_p95_ms` is of the last ten seconds, 0 without a request in that time. `queue`: requests that the
    engines hold and have not begun.
    """

    first_token_p95_ms: float = 0.0
    queue: int = 0


class LoadFigures(Observer):
    """A request that still waits for its first token counts with the time that it has waited so far. Otherwise a worker
    that answers no request would look idle.
    """

    def __init__(self, queue: Callable[[], int]) -> None:
        self._queue = queue
        self._waits: deque[tuple[int, int]] = deque(maxlen=_MOST)  # when the first token came, and how long it took
        self._waiting: WeakSet[InFlight] = WeakSet()

    def admitted(self, partition: int, inflight: InFlight) -> None:  # noqa: ARG002
        self._waiting.add(inflight)

    def now(self) -> Load:
        now = time.time_ns()
        waiting = []
        for inflight in list(self._waiting):
            answer = inflight.answer
            if answer is not None and answer.first_at is not None:
                self._waits.append((now // 1_000_000, max(0, answer.first_at - inflight.accepted.at)))
            elif answer is None or answer.ended_at is None:
                waiting.append((now - inflight.timeline.arrived) // 1_000_000)
                continue
            self._waiting.discard(inflight)
        while self._waits and self._waits[0][0] < now // 1_000_000 - _WINDOW_MS:
            self._waits.popleft()
        waits = sorted([*(waited for _, waited in self._waits), *waiting])
        return Load(waits[math.ceil(0.95 * len(waits)) - 1] if waits else 0.0, self._queue())
