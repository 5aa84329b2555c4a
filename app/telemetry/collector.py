"""Metrics that are looked up when somebody asks: the state of partitions, engines and history as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.search.figures import Figures
from app.telemetry.broker_watch import BrokerWatch
from app.telemetry.gpu import gpu_families, gpus
from app.telemetry.metrics import Metrics
from app.telemetry.partitions import partition_families
from app.worker import Worker
from models.generation import Engine


class WorkerCollector(Collector):
    """Tells the same names whether the worker is there or not."""

    def __init__(self, worker: Callable[[], Worker | None], watch: BrokerWatch, metrics: Metrics) -> None:
        self._worker = worker
        self._watch = watch
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        self._metrics.pass_time()
        worker = self._worker()
        partitions = [] if worker is None else list(worker.owner.partitions.values())
        yield from partition_families(partitions, self._watch.ends)
        yield from _engine_families([] if worker is None else worker.engines)
        yield from _history_families(Figures() if worker is None else worker.history_figures)
        yield from gpu_families(gpus())
        yield GaugeMetricFamily("parley:broker_silent_seconds", "since the broker answered last", self._watch.silent_s)


def _engine_families(engines: Sequence[Engine]) -> Iterable[Metric]:
    named = ["model_name"]
    running = GaugeMetricFamily("parley:num_requests_running", "answers that the engine decodes", labels=named)
    waiting = GaugeMetricFamily("parley:num_requests_waiting", "requests in the engine's queue", labels=named)
    usage = GaugeMetricFamily("parley:kv_cache_usage_perc", "share of the KV cache in use, 0 to 1", labels=named)
    step = GaugeMetricFamily("parley:engine_step_seconds", "the step in hand has been running", labels=named)
    preempted = CounterMetricFamily("parley:num_preemptions", "answers that lost their memory", labels=named)
    steps = CounterMetricFamily("parley:engine_steps", "steps of the engine", labels=named)
    for engine in engines:
        name, figures = [engine.model_version], engine.figures
        running.add_metric(name, figures.running)
        waiting.add_metric(name, figures.waiting)
        usage.add_metric(name, figures.kv_cache_usage)
        step.add_metric(name, figures.step_s)
        preempted.add_metric(name, figures.preemptions)
        steps.add_metric(name, figures.steps)
    return running, waiting, usage, step, preempted, steps


def _history_families(figures: Figures) -> Iterable[Metric]:
    yield GaugeMetricFamily("parley:history_backlog", "turns that are not in Milvus yet", figures.backlog)
    yield GaugeMetricFamily("parley:history_lag_seconds", "age of the oldest of them", figures.lag_s)
    yield CounterMetricFamily("parley:history_rows", "rows written to Milvus", figures.rows)
    yield CounterMetricFamily("parley:history_rejected", "turns that Milvus will never take", figures.rejected)
    yield CounterMetricFamily("parley:history_retries", "calls of Milvus that were tried again", figures.retries)
