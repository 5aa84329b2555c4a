"""Everything that observes one worker, created and stopped together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from app.delivery.clients import Clients
from app.delivery.observer import Observer, Observers
from app.features.waits.metrics import WaitMetrics
from app.settings import Settings
from app.telemetry.broker_watch import BrokerWatch
from app.telemetry.collector import WorkerCollector
from app.telemetry.gen_ai_metrics import GenAiMetrics
from app.telemetry.health import Health, health_of
from app.telemetry.log_counter import LogCounter
from app.telemetry.loop_lag import LoopLag
from app.telemetry.metrics import WorkerMetrics
from app.telemetry.request_log import RequestLog
from app.telemetry.tracing import Tracing
from app.telemetry.watch_figures import WatchFigures

if TYPE_CHECKING:
    from app.worker import Worker

_NO_VIEW = "Faust's views are off, as its tables are not used; /metrics, /healthz and /readyz tell of this worker"


class Telemetry:
    def __init__(
        self,
        settings: Settings,
        worker: Callable[[], Worker | None],
        watcher: Callable[[], WatchFigures] = WatchFigures,
    ) -> None:
        def numbers() -> list[int]:
            running = worker()
            return [] if running is None else list(running.partitions.all)

        def foreign() -> list[TopicPartition]:
            running = worker()
            return [] if running is None else list(running.intake_positions)

        self.registry = CollectorRegistry()
        self._worker = worker
        self.watch = BrokerWatch(Clients(settings), numbers, foreign)
        metrics = WorkerMetrics(self.registry, settings)
        log = RequestLog(as_fields=settings.log_format == "json")
        observers: list[Observer] = [metrics, GenAiMetrics(self.registry, settings), WaitMetrics(self.registry), log]
        self._tracing = Tracing.of(settings, "parley-worker")
        if self._tracing is not None:
            from app.telemetry.request_traces import RequestTraces  # imports OpenTelemetry

            observers.insert(0, RequestTraces(self._tracing, settings))
        self.observer: Observer = Observers(*observers)
        self._loop_lag = LoopLag(self.registry)
        self._log_counter = LogCounter(self.registry, "parley:log_lines")
        self.registry.register(WorkerCollector(worker, self.watch, metrics, watcher))
        for standard in (ProcessCollector, PlatformCollector, GCCollector):
            standard(registry=self.registry)

    def start(self) -> None:
        self._log_counter.start()
        self.watch.start()
        self._loop_lag.start()

    async def stop(self) -> None:
        await self.watch.stop()
        await self._loop_lag.stop()
        self._log_counter.stop()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.stop)

    def add_pages(self, app: Any) -> None:
        """`/metrics`, `/healthz` and `/readyz` on the web server of the Faust application; why there is no other."""

        def health() -> Health:
            return health_of(self._worker(), self.watch, rebalancing=bool(app.rebalancing))

        @app.page("/healthz")
        async def healthz(view: Any, request: Any) -> Any:  # noqa: ARG001
            now = health()
            return view.json(now.details, status=200 if now.alive else 503)

        @app.page("/readyz")
        async def readyz(view: Any, request: Any) -> Any:  # noqa: ARG001
            now = health()
            return view.json(now.details, status=200 if now.ready else 503)

        async def no_view(view: Any, request: Any) -> Any:  # noqa: ARG001
            return view.json({"error": _NO_VIEW}, status=404)

        for path in ("/graph/", "/router/", "/stats/", "/tables/"):
            app.page(path, name=path)(no_view)

        @app.page("/metrics")
        async def metrics(view: Any, request: Any) -> Any:  # noqa: ARG001
            reported = generate_latest(self.registry)
            return view.web.bytes(reported, content_type=None, headers={"Content-Type": CONTENT_TYPE_LATEST})
