"""What a worker knows of its watcher (app/watch)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


@dataclass(frozen=True, slots=True)
class WatchFigures:
    """`leaves` are those for this worker's former lives."""

    ready: bool = False
    restarts: int = 0
    leaves: int = 0

    def families(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "parley:watch_ready", "Whether a watcher would leave the group if this process died now.", self.ready
        )
        yield CounterMetricFamily("parley:watch_restarts", "Watchers of this process that ended.", self.restarts)
        yield CounterMetricFamily(
            "parley:watch_leaves", "Leaves of the group by watchers, for former processes of this worker.", self.leaves
        )
