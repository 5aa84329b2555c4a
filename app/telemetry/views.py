"""`/metrics`, `/healthz` and `/readyz` on the worker's web server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.telemetry.health import Health, health_of
from app.telemetry.telemetry import Telemetry

if TYPE_CHECKING:
    from app.worker import Worker


def add_views(app: Any, telemetry: Telemetry, worker: Callable[[], Worker | None]) -> None:
    def health() -> Health:
        return health_of(worker(), telemetry.watch, rebalancing=bool(app.rebalancing))

    @app.page("/healthz")
    async def healthz(self: Any, request: Any) -> Any:  # noqa: ARG001
        now = health()
        return self.json(now.details, status=200 if now.alive else 503)

    @app.page("/readyz")
    async def readyz(self: Any, request: Any) -> Any:  # noqa: ARG001
        now = health()
        return self.json(now.details, status=200 if now.ready else 503)

    @app.page("/metrics")
    async def metrics(self: Any, request: Any) -> Any:  # noqa: ARG001
        reported = generate_latest(telemetry.registry)
        return self.web.bytes(reported, content_type=None, headers={"Content-Type": CONTENT_TYPE_LATEST})
