"""`/metrics`, `/healthz` and `/readyz` on the worker's web server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faust.sensors.prometheus import setup_prometheus_sensors
from prometheus_client import CollectorRegistry

from app.telemetry.collector import WorkerCollector
from app.telemetry.health import health_of
from app.telemetry.metrics import Metrics
from app.worker import Worker


def add_views(app: Any, worker: Callable[[], Worker | None]) -> Metrics:
    """Serve them, Faust's own sensors among the metrics; returns what the worker counts with."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(worker))
    setup_prometheus_sensors(app, registry=registry, name_prefix="faust")

    @app.page("/healthz")
    async def healthz(self: Any, request: Any) -> Any:  # noqa: ARG001
        health = health_of(worker())
        return self.json(health.details, status=200 if health.alive else 503)

    @app.page("/readyz")
    async def readyz(self: Any, request: Any) -> Any:  # noqa: ARG001
        health = health_of(worker())
        return self.json(health.details, status=200 if health.ready else 503)

    return Metrics(registry)
