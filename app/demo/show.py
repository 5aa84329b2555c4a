"""The demo from its first download to its last process."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from app.demo.dialogues import talk
from app.demo.parts import DemoGateway, DemoPart, DemoTools, DemoWorker, while_alive
from app.demo.script import SEARCH, SPEAKERS, best_hit
from app.local.instance import Endpoints, LocalInstance
from app.local.jars import kafka_jars
from app.local.report import LocalError, Report, silent
from app.process.folder_lock import locked
from app.reader import TokenReader
from app.settings import Settings

READY_TIMEOUT_S = 180.0


class Show:
    """Runs the demo once; leaves no process behind, however it ends."""

    def __init__(self, settings: Settings, instance: LocalInstance, report: Report) -> None:
        self._settings = settings
        self._instance = instance
        self._report = report
        self._took: dict[str, float] = {}
        self.told_all = False

    def run(self, *, stay: bool) -> None:
        folder = self._instance.folder
        folder.mkdir(parents=True, exist_ok=True)
        with locked(
            folder / "demo.lock", f"a demo is already running in {folder}", silent, timeout=0, failure=LocalError
        ):
            with self._timed("download"):
                kafka_jars(self._report)
            worker = DemoWorker(folder / "worker")
            gateway = DemoGateway(folder / "gateway", self._settings.gateway_port)
            tools = DemoTools(folder / "tool")
            with self._stopped_at_the_end(worker, gateway, tools):
                for part in (worker, gateway, tools):
                    if part.stop():
                        self._report(f"{part.process.name} of an earlier demo was stopped")
                begun = time.monotonic()
                addresses = self._instance.up(report=self._report)
                asyncio.run(self._perform(addresses, worker, gateway, tools, begun))
                self.told_all = True
                self._report("done: " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._took.items()))
                if stay:
                    self._wait(addresses, worker, gateway, tools)

    async def _perform(
        self, addresses: Endpoints, worker: DemoWorker, gateway: DemoGateway, tools: DemoTools, begun: float
    ) -> None:
        settings = self._settings.model_copy(update={"broker": addresses.broker, "milvus_uri": addresses.milvus_uri})
        async with TokenReader(settings.cluster, settings.topic("tokens")) as reader:
            worker.spawn(addresses.as_settings())
            tools.spawn(addresses.as_settings())
            gateway.spawn({**addresses.as_settings(), "PARLEY_GATEWAY_TOOLS": str(tools.definitions)})
            await self._owned(reader, settings.partitions, worker)
        self._report(f"the worker is ready, with the model {settings.model!r}")
        self._took["start"] = time.monotonic() - begun
        conversation_id = f"demo-{time.time():.0f}"
        with self._timed("talk"):
            asked = await while_alive(worker.process, talk(settings, SPEAKERS, conversation_id))
        with self._timed("search"):
            hit = await best_hit(settings, asked, conversation_id)
        self._report(f"{SEARCH.user_id} searches for {SEARCH.query!r}")
        self._report(f"  {hit.similarity:.2f}  {hit.role.value}: {hit.text}")
        gateway.wait_until_ready()
        self._report(f"the chat page is at {gateway.address}")

    async def _owned(self, reader: TokenReader, partitions: int, worker: DemoWorker) -> None:
        """Wait until every partition has an owner, which shows by its fence."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while len(reader.rule.epochs) < partitions:
            worker.process.require_alive()
            if time.monotonic() > deadline:
                raise LocalError(f"the worker was not ready after {READY_TIMEOUT_S:.0f} s; see {worker.process.log}")
            await asyncio.sleep(0.05)

    def _wait(self, addresses: Endpoints, *parts: DemoPart) -> None:
        self._report(f"Kafka is at {addresses.broker}, Milvus at {addresses.milvus_uri}")
        settings = "".join(f"{name}={value} " for name, value in addresses.as_settings().items())
        prefix = settings if self._instance.env_file.is_of_another else ""
        self._report(f"try it: the chat page, or {prefix}.venv/bin/parley chat --user you")
        self._report("everything stays up until Ctrl-C")
        while True:
            for part in parts:
                part.process.require_alive()
            time.sleep(0.5)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self._took[name] = time.monotonic() - begun

    @contextmanager
    def _stopped_at_the_end(self, *parts: DemoPart) -> Iterator[None]:
        try:
            yield
        finally:
            with _undisturbed():
                for part in reversed(parts):
                    if part.stop():
                        self._report(f"{part.process.name} stopped")
                self._instance.down(self._report)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not leave half of it running; each stop has its own time limit."""

    def ignore(_number: int, _frame: FrameType | None) -> None:
        return None

    before = {number: signal.signal(number, ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
