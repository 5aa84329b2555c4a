"""The chart as pods: requests through the Service while pods are upgraded, deleted, killed, evicted, suspended.

    python -m tests.pods

Callers with the client package ask through the gateways' Service, one question after another, and plain callers open a
new connection for each call and try nothing again. Afterwards the topics are judged as after faults.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.settings import Settings
from tests.integration.deploy.control_plane import BINARIES, ControlPlane
from tests.operations.callers import Callers
from tests.operations.stage import KEY
from tests.operations.verdict import verdict_of
from tests.pods import image
from tests.pods.chart import BESIDE, BROKER, PARTITIONS, PATIENCE_S, SPACE, Chart, restarts
from tests.pods.node import PROGRAMS, Node
from tests.pods.plain import PlainCallers

CONTROLLERS = "*,-service-lb-controller,-cloud-node-lifecycle-controller,-node-route-controller,-node-ipam-controller"
PODS = 4
IMAGES = image.ROOT / "build" / "pods" / "images.tar"


class Trouble:
    def __init__(self, chart: Chart, node: Node, callers: Callers, plain: PlainCallers) -> None:
        self._chart = chart
        self._node = node
        self._callers = callers
        self._plain = plain
        self._rows: list[str] = []

    async def all(self) -> None:
        async with self._during("nothing"):
            await self._callers.answers(30)
        async with self._during("a rolling upgrade of workers and gateways"):
            upgraded_at = int(time.time())
            self._chart.upgrade()
            await self._ready(upgraded_at)
        self._chart.show()
        async with self._during("a worker's pod deleted"):
            self._chart.remove(self._chart.pods("worker")[0])
            await self._ready()
        async with self._during("a worker's pod killed (grace period 0)"):
            self._chart.remove(self._chart.pods("worker")[1], 0)
            await self._ready()
        async with self._during("all pods evicted, as the budgets allow"):
            evicted_at = time.time()
            for pod in [*self._chart.pods("worker"), *self._chart.pods("gateway")]:
                await asyncio.to_thread(self._chart.evict, pod)
                self._chart.say(f"evicted: {pod['metadata']['name']}")
            await self._ready()
        self._chart.events(evicted_at)
        async with self._during("a gateway suspended: readiness fails, then liveness"):
            await self._suspend()
        self._chart.show()
        print("\n".join(("", *_HEAD, *self._rows, "")), flush=True)

    async def _suspend(self) -> None:
        """A gateway hangs; its readers wait until its liveness probe fails, too."""
        (first, *_) = self._chart.pods("gateway")
        name, began = first["metadata"]["name"], time.monotonic()
        self._node.suspend(first)
        await asyncio.to_thread(ControlPlane.until, lambda: self._chart.endpoints() == 1, PATIENCE_S)
        self._chart.say(f"the Service has one endpoint after {time.monotonic() - began:.1f} s")
        await self._callers.answers(8)
        before = restarts(first)

        def started_again() -> bool:
            return any(
                one["metadata"]["name"] == name and restarts(one) > before for one in self._chart.pods("gateway")
            )

        await asyncio.to_thread(ControlPlane.until, started_again, PATIENCE_S)
        self._chart.say(f"{name} is started again after {time.monotonic() - began:.1f} s")
        await self._ready()

    async def _ready(self, newer_than: float = 0.0) -> None:
        await asyncio.to_thread(self._chart.until_ready, SPACE, PODS, newer_than)
        await self._callers.answers(8)

    @asynccontextmanager
    async def _during(self, name: str) -> AsyncIterator[None]:
        self._chart.say(name)
        began, answers, failed = time.monotonic(), len(self._callers.pauses), len(self._callers.failed)
        calls, not_answered = self._plain.calls.total(), Counter(self._plain.failed)
        yield
        pauses = sorted(self._callers.pauses[answers:])
        p50, p99 = statistics.median(pauses), pauses[round(0.99 * (len(pauses) - 1))]
        more = self._plain.failed - not_answered
        told = ", ".join(f"{count} {how}" for how, count in more.items()) or "0"
        row = f"| {name} | {time.monotonic() - began:.0f} | {len(pauses)} | {len(self._callers.failed) - failed} "
        row += f"| {p50:.2f}, {p99:.2f}, {pauses[-1]:.2f} | {self._plain.calls.total() - calls} | {told} |"
        self._rows.append(row)
        self._chart.say(row)


_HEAD = (
    "| during | seconds | answers | failed | longest pause of each (p50, p99, max s) | plain calls | failed |",
    "|---|---|---|---|---|---|---|",
)


async def main(folder: Path, images: Path) -> int:
    plane = ControlPlane(folder / "plane", CONTROLLERS)
    (folder / "plane").mkdir()
    with plane, Node(folder / "node", plane, images) as node:
        chart = Chart(folder, plane)
        try:
            chart.say("the node is ready")
            await asyncio.to_thread(chart.install)
            chart.say("the chart is installed")
            await asyncio.to_thread(chart.until_ready, SPACE, PODS)
            chart.show()
            return await _judged(folder, chart, node)
        finally:
            for space in (SPACE, BESIDE):
                plane.delete(f"/api/v1/namespaces/{space}")
            await asyncio.to_thread(plane.until, lambda: not (plane.pods(SPACE) + plane.pods(BESIDE)), 120.0)


async def _judged(folder: Path, chart: Chart, node: Node) -> int:
    key = folder / "key"
    key.write_text(KEY)
    async with Callers([chart.address()], key) as callers:
        await callers.answers(1)
        chart.say("the first answer through the Service")
        async with PlainCallers(chart.address()) as plain:
            await Trouble(chart, node, callers, plain).all()
        await callers.finish()
    settings = Settings(_env_file=None, broker=f"kafka://{BROKER}:9092", partitions=PARTITIONS)
    verdict = await verdict_of(settings)
    chart.say(f"{callers.answered} answers, failed: {callers.failed}; {verdict.line()}")
    return int(bool(callers.failed) or not verdict.clean)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.pods", description=__doc__)
    parser.add_argument("--images", type=Path, default=IMAGES, help="an archive, made if it is not there")
    parser.add_argument("--keep", type=Path, help="a folder that keeps all logs")
    options = parser.parse_args()
    programs = (*BINARIES, *PROGRAMS, "helm", *(() if options.images.exists() else image.PROGRAMS))
    missing = [name for name in programs if shutil.which(name) is None]
    if missing or os.geteuid():
        print(f"skipped: pods need root and, on the PATH, {', '.join(missing) or 'nothing more'}")
        sys.exit(0)
    if not options.images.exists():
        image.make_images(options.images)
    with tempfile.TemporaryDirectory(prefix="parley-pods-", ignore_cleanup_errors=True) as made:
        sys.exit(asyncio.run(main(options.keep or Path(made), options.images)))
