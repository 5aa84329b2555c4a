"""The state of the partitions as it is now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from app.delivery.partition import Partition, State
from app.delivery.record import SOURCES
from app.telemetry.broker_watch import Place


def partition_families(partitions: Sequence[Partition], ends: Mapping[Place, int]) -> Iterable[Metric]:
    owned = _gauge("partition_owned", "1 while answers go on", "partition")
    opened = _gauge("partition_open", "records in memory without their end", "partition", "topic")
    held = _gauge("partition_held_bytes", "memory of those records, at the most", "partition", "topic")
    paused = _gauge("partition_paused", "1 while records are left in Kafka", "partition", "topic")
    running = _gauge("partition_in_flight", "answers being made", "partition")
    waiting = _gauge("partition_waiting", "requests in memory that wait for their turn", "partition")
    epoch = _gauge("partition_epoch", "epoch of the ownership", "partition")
    age = _gauge("partition_commit_age_seconds", "the oldest finish has waited for its commit", "partition")
    lag = _gauge("partition_lag_records", "offsets that are not finished", "partition", "topic")
    late = _gauge("partition_lag_seconds", "age of the oldest request that is not finished", "partition")
    size = _gauge("table_bytes", "of the tables, on disk and in memory", "partition")
    for partition in partitions:
        number = str(partition.number)
        owned.add_metric([number], partition.state is State.OWNED)
        late.add_metric([number], lag_seconds(partition))
        age.add_metric([number], partition.place.queue.age_s)
        for topic in SOURCES:
            opened.add_metric([number, topic], partition.open_of(topic))
            held.add_metric([number, topic], partition.bytes_of(topic))
            paused.add_metric([number, topic], topic in partition.paused)
        if partition.state is not State.OWNED:
            continue
        running.add_metric([number], partition.lanes.running)
        waiting.add_metric([number], partition.lanes.waiting)
        epoch.add_metric([number], partition.own.epoch)
        size.add_metric([number], partition.own.store.size_bytes())
        for topic in SOURCES:
            if (end := ends.get((topic, partition.number))) is not None:
                lag.add_metric([number, topic], max(0, end - partition.own.offsets[topic].head()))
    return owned, opened, held, paused, running, waiting, epoch, age, lag, late, size


def lag_seconds(partition: Partition) -> float:
    """Age of the oldest request in memory: those in Kafka are younger. 0 where there is none."""
    oldest = partition.oldest_request
    return 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)


def _gauge(name: str, documentation: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"parley:{name}", documentation, labels=labels)
