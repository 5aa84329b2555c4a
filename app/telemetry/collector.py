"""Metrics that are looked up when somebody asks: the state of partitions, engine and history as it is now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.delivery.partition import Partition, State
from app.delivery.record import CONTROLS, REQUESTS, TURNS
from app.worker import Worker


class WorkerCollector(Collector):
    def __init__(self, worker: Callable[[], Worker | None]) -> None:
        self._worker = worker

    def collect(self) -> Iterable[Metric]:
        worker = self._worker()
        if worker is None:
            return
        partitions = list(worker.owner.partitions.values())
        yield from _of_partitions(partitions)
        owned = [partition for partition in partitions if partition.state is State.OWNED]
        yield GaugeMetricFamily(
            "parley:num_requests_running", "answers being made", sum(partition.lanes.running for partition in owned)
        )
        yield GaugeMetricFamily(
            "parley:num_requests_waiting",
            "requests in memory that wait for their turn",
            sum(partition.lanes.waiting for partition in owned),
        )
        yield GaugeMetricFamily("parley:history_backlog", "turns that are not in Milvus yet", worker.history_backlog)


def _of_partitions(partitions: list[Partition]) -> Iterable[Metric]:
    owned = GaugeMetricFamily("parley:partition_owned", "1 while answers go on", labels=["partition"])
    opened = GaugeMetricFamily(
        "parley:partition_open", "records in memory without their end", labels=["partition", "topic"]
    )
    paused = GaugeMetricFamily(
        "parley:partition_paused", "1 while records wait in Kafka", labels=["partition", "topic"]
    )
    epoch = GaugeMetricFamily("parley:partition_epoch", "epoch of the ownership", labels=["partition"])
    age = GaugeMetricFamily(
        "parley:partition_commit_age_seconds", "since the last commit, while finishes wait", labels=["partition"]
    )
    for partition in partitions:
        number = str(partition.number)
        owned.add_metric([number], partition.state is State.OWNED)
        for topic in (REQUESTS, CONTROLS, TURNS):
            opened.add_metric([number, topic], partition.open_of(topic))
            paused.add_metric([number, topic], topic in partition.paused)
        if partition.state is State.OWNED:
            epoch.add_metric([number], partition.own.epoch)
            age.add_metric([number], commit_age(partition))
    yield from (owned, opened, paused, epoch, age)


def commit_age(partition: Partition) -> float:
    """Seconds that finishes have waited for their commit; 0 where none waits."""
    if not partition.place.queue.waiting:
        return 0.0
    return time.monotonic() - partition.own.finisher.committed_at
