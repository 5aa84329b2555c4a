"""The current state of the partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from app.delivery.partition import Partition, State
from app.delivery.record import SOURCES
from app.telemetry.broker_watch import Place


def partition_families(partitions: Sequence[Partition], ends: Mapping[Place, int]) -> Iterable[Metric]:
    owned = _gauge("partition_owned", "1 while the partition's requests are served.", "partition")
    opened = _gauge("partition_open", "Open records.", "partition", "topic")
    held = _gauge("partition_held_bytes", "Upper bound of the memory of those records in bytes.", "partition", "topic")
    paused = _gauge("partition_paused", "1 while the topic's partition is paused.", "partition", "topic")
    running = _gauge("partition_in_flight", "Running requests.", "partition")
    waiting = _gauge("partition_waiting", "Requests in memory that have not begun.", "partition")
    epoch = _gauge("partition_epoch", "Epoch of the ownership.", "partition")
    age = _gauge("partition_commit_age_seconds", "Seconds that the oldest commit has waited.", "partition")
    lag = _gauge("partition_lag_records", "Records that are not finished.", "partition", "topic")
    late = _gauge("partition_lag_seconds", "Age of the oldest unfinished request in seconds.", "partition")
    size = _gauge("table_bytes", "Size of the tables on disk and in memory in bytes.", "partition")
    for partition in partitions:
        number = str(partition.number)
        owned.add_metric([number], partition.state is State.OWNED)
        late.add_metric([number], lag_seconds(partition))
        age.add_metric([number], partition.context.queue.age_s)
        for topic in SOURCES:
            opened.add_metric([number, topic], partition.records.count(topic))
            held.add_metric([number, topic], partition.records.size(topic))
            paused.add_metric([number, topic], topic in partition.paused)
        if partition.state is not State.OWNED:
            continue
        running.add_metric([number], partition.lanes.running)
        waiting.add_metric([number], partition.lanes.waiting)
        epoch.add_metric([number], partition.ownership.epoch)
        size.add_metric([number], partition.ownership.store.size_bytes())
        for topic in SOURCES:
            if (end := ends.get((topic, partition.number))) is not None:
                lag.add_metric([number, topic], max(0, end - partition.ownership.offsets[topic].head()))
    return owned, opened, held, paused, running, waiting, epoch, age, lag, late, size


def lag_seconds(partition: Partition) -> float:
    """Age of the oldest request in memory, 0 if there is none. Requests in Kafka are younger."""
    oldest = partition.records.oldest_request
    return 0.0 if oldest is None else max(0.0, time.time() - oldest / 1000)


def _gauge(name: str, documentation: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"parley:{name}", documentation, labels=labels)
