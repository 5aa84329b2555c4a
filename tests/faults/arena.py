"""Where faults are inflicted: a cluster, workers that are started again when they end, a load, a watch."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.load import Load
from tests.faults.verdict import Verdict, judge
from tests.faults.watch import Watch
from tests.faults.worker_process import WorkerProcess

SETTLE_S = 180.0


class Arena:
    def __init__(self, cluster: KafkaCluster, settings: Settings, folder: Path, load: Load, watch: Watch) -> None:
        self.cluster = cluster
        self.settings = settings
        self.folder = folder
        self.load = load
        self.watch = watch
        self.workers: dict[str, WorkerProcess] = {}
        self.random = random.Random(7)
        self.exits: Counter[str] = Counter()
        """How workers ended that nobody had told to."""
        self.expected: set[str] = set()
        """Workers that are going to end by themselves."""

    def data_dir(self, name: str) -> Path:
        return self.folder / "data" / name

    def start(self, name: str, plug: tuple[str, int] | None = None) -> WorkerProcess:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.settings.model_copy(update={"data_dir": self.data_dir(name)})
        settings.__pydantic_fields_set__.add("data_dir")
        self.workers[name] = WorkerProcess(settings, self.folder / f"{name}.log", plug).start()
        return self.workers[name]

    def any(self) -> str:
        return self.random.choice(sorted(self.workers))

    async def speaking(self, timeout_s: float = 120.0) -> None:
        """Until answers are being told, among them all that a fault has silenced."""
        told = self.watch.told
        async with asyncio.timeout(timeout_s):
            while self.watch.told < told + 5 or self.watch.silenced:
                await asyncio.sleep(0.02)

    async def ended(self, name: str, timeout_s: float = 90.0) -> int:
        worker = self.workers[name]
        async with asyncio.timeout(timeout_s):
            while worker.exit_code is None:
                await asyncio.sleep(0.02)
        assert worker.exit_code is not None
        return worker.exit_code

    async def tend(self) -> None:
        """Start again what has ended, as a supervisor does."""
        while True:
            for name, worker in list(self.workers.items()):
                if worker.exit_code is not None:
                    if name in self.expected:
                        self.expected.discard(name)
                    else:
                        self.exits[f"exit {worker.exit_code}: {worker.last_words()}"] += 1
                    self.start(name)
            await asyncio.sleep(0.05)

    async def settle(self) -> None:
        """Until every request has its end."""
        deadline = time.monotonic() + SETTLE_S
        while len(self.watch.ended) < self.load.sent and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)

    async def verdict(self) -> Verdict:
        return await judge(self.settings)


@asynccontextmanager
async def arena(
    cluster: KafkaCluster, settings: Settings, folder: Path, *, workers: int = 1, per_s: float = 5.0
) -> AsyncIterator[Arena]:
    """An arena in which answers are being told; at its end the load stops and every request gets its time to end."""
    async with Watch(settings) as watch:
        load = Load(settings, per_s=per_s)
        place = Arena(cluster, settings, folder, load, watch)
        for number in range(workers):
            place.start(f"w{number}")
        tending = asyncio.create_task(place.tend())
        try:
            async with load:
                await place.speaking()
                yield place
            await place.settle()
        finally:
            tending.cancel()
            with suppress(asyncio.CancelledError):
                await tending
            for worker in place.workers.values():
                worker.kill()
