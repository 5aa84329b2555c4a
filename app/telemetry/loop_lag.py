"""How late the event loop is: all of a worker except its model runs on it."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Histogram

EVERY_S = 0.5
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class LoopLag:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "parley:event_loop_lag_seconds", "Delay of a timer in seconds.", buckets=_BUCKETS, registry=registry
        )
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._measure(), name="loop-lag")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY_S
            await asyncio.sleep(EVERY_S)
            self._lag.observe(max(0.0, loop.time() - due))
