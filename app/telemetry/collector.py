"""Metrics computed at each scrape: the current state of partitions, engines, index and GPUs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from app.features.order import families_of
from app.search.index import IndexStats
from app.telemetry.broker_watch import BrokerWatch
from app.telemetry.metrics import WorkerMetrics
from app.telemetry.partitions import partition_families
from app.telemetry.watch_figures import WatchFigures
from models.interface.generation import STEP_ROWS, Engine

if TYPE_CHECKING:
    from app.worker import Worker


class WorkerCollector(Collector):
    """Returns the same metric names whether or not the worker has started."""

    def __init__(
        self,
        worker: Callable[[], Worker | None],
        watch: BrokerWatch,
        metrics: WorkerMetrics,
        watcher: Callable[[], WatchFigures],
    ) -> None:
        self._worker = worker
        self._watcher = watcher
        self._watch = watch
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        self._metrics.pass_time()
        worker = self._worker()
        partitions = [] if worker is None else list(worker.partitions.all.values())
        yield from partition_families(partitions, self._watch.ends)
        yield _intake_family({} if worker is None else worker.intake_positions, self._watch.foreign_ends)
        yield from engine_families([] if worker is None else worker.engines)
        yield from _index_families(IndexStats() if worker is None else worker.index_figures)
        yield from families_of(None if worker is None else worker.features, partitions)
        yield GaugeMetricFamily(
            "parley:erasure_age_seconds",
            "Seconds since the oldest erasure under way began at this worker; 0 without one.",
            0.0 if worker is None else worker.oldest_erasure_s,
        )
        yield from gpu_families(gpus())
        yield GaugeMetricFamily(
            "parley:broker_silent_seconds", "Seconds since the broker last answered.", self._watch.silent_s
        )
        yield from self._watcher().families()


def _intake_family(positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Metric:
    lag = GaugeMetricFamily(
        "parley:intake_lag_records", "Records of a topic of others that are no requests yet.", labels=["topic"]
    )
    waiting: Counter[str] = Counter()
    for at, position in positions.items():
        if at in ends:
            waiting[at.topic] += max(0, ends[at] - position)
    for topic, count in waiting.items():
        lag.add_metric([topic], count)
    return lag


def engine_families(engines: Sequence[Engine]) -> Iterable[Metric]:
    named = ["model_name"]
    running = GaugeMetricFamily("parley:num_requests_running", "Sequences that the engine is decoding.", labels=named)
    waiting = GaugeMetricFamily("parley:num_requests_waiting", "Requests in the engine's queue.", labels=named)
    usage = GaugeMetricFamily("parley:kv_cache_usage_perc", "Fraction of the KV cache in use, 0 to 1.", labels=named)
    step = GaugeMetricFamily(
        "parley:engine_step_seconds", "Duration of the current engine step in seconds.", labels=named
    )
    preempted = CounterMetricFamily(
        "parley:num_preemptions", "Sequences preempted because the KV cache was full.", labels=named
    )
    steps = CounterMetricFamily("parley:engine_steps", "Engine steps.", labels=named)
    rows = HistogramMetricFamily("parley:engine_step_rows", "Sequences that an engine step computes.", labels=named)
    for engine in engines:
        name, stats = [engine.model_version], engine.stats
        running.add_metric(name, stats.running)
        waiting.add_metric(name, stats.waiting)
        usage.add_metric(name, stats.kv_cache_usage)
        step.add_metric(name, stats.step_s)
        preempted.add_metric(name, stats.preemptions)
        steps.add_metric(name, stats.steps)
        counts = zip(map(floatToGoString, STEP_ROWS), accumulate(map(float, stats.step_rows.counts)), strict=True)
        rows.add_metric(name, buckets=list(counts), sum_value=stats.step_rows.rows)
    return running, waiting, usage, step, preempted, steps, rows, *_server_families(engines)


def _server_families(engines: Sequence[Engine]) -> Iterable[Metric]:
    named = ["model_name", "server"]
    asked = GaugeMetricFamily(
        "parley:outside_server_up", "Whether an outside server is asked: 0 while it is left alone.", labels=named
    )
    running = GaugeMetricFamily("parley:outside_server_running", "Answers that it is giving.", labels=named)
    first = GaugeMetricFamily(
        "parley:outside_server_first_token_seconds", "Its time to the first token, a moving average.", labels=named
    )
    failures = CounterMetricFamily("parley:outside_server_failures", "Requests that failed there.", labels=named)
    for engine in engines:
        for one in engine.stats.servers:
            labels = [engine.model_version, one.address]
            asked.add_metric(labels, one.is_asked)
            running.add_metric(labels, one.running)
            first.add_metric(labels, one.first_token_s)
            failures.add_metric(labels, one.failures)
    return asked, running, first, failures


def _index_families(stats: IndexStats) -> Iterable[Metric]:
    yield GaugeMetricFamily("parley:index_backlog", "Turns that are not in Milvus yet.", stats.backlog)
    yield GaugeMetricFamily("parley:index_lag_seconds", "Age of the oldest of them in seconds.", stats.lag_s)
    yield CounterMetricFamily("parley:index_rows", "Rows written to Milvus.", stats.rows)
    yield CounterMetricFamily("parley:index_rejected", "Turns that Milvus has rejected.", stats.rejected)
    yield CounterMetricFamily("parley:index_retries", "Retried calls of Milvus.", stats.retries)


@dataclass(frozen=True, slots=True)
class Gpu:
    """Bytes, and utilization from 0 to 1; None if nvidia-ml-py is not installed."""

    name: str
    used: int
    total: int
    busy: float | None


def gpus() -> list[Gpu]:
    """The state of this process's GPUs; empty without one. Never imports torch for it."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    # Querying another GPU would allocate memory on it.
    ours = [number for number in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(number)]
    return [_state_of(torch, number) for number in ours]


def _state_of(torch: Any, number: int) -> Gpu:
    free, total = torch.cuda.mem_get_info(number)
    try:
        busy = torch.cuda.utilization(number) / 100
    except Exception:  # noqa: BLE001  NVML's own errors, a slice of a GPU has none: the other figures go on
        busy = None
    return Gpu(str(number), total - free, total, busy)


def gpu_families(states: Iterable[Gpu]) -> Iterable[Metric]:
    used = GaugeMetricFamily("parley:gpu_memory_used_bytes", "Memory that all processes use, in bytes.", labels=["gpu"])
    total = GaugeMetricFamily("parley:gpu_memory_bytes", "Memory of the GPU in bytes.", labels=["gpu"])
    busy = GaugeMetricFamily("parley:gpu_utilization_ratio", "GPU utilization, 0 to 1.", labels=["gpu"])
    for gpu in states:
        used.add_metric([gpu.name], gpu.used)
        total.add_metric([gpu.name], gpu.total)
        if gpu.busy is not None:
            busy.add_metric([gpu.name], gpu.busy)
    return used, total, busy
