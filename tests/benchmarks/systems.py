"""What is measured, side by side: each starts, answers loads, reports its use of resources, and stops."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from app.kafka.topics import create_topics
from app.settings import Settings
from tests.benchmarks.http_client import HttpClient
from tests.benchmarks.kafka_client import KafkaClient
from tests.benchmarks.load import Load, Reply
from tests.benchmarks.processes import ROOT, Served, Used, used
from tests.benchmarks.rig import Rig
from tests.faults.worker_process import WorkerProcess

START_TIMEOUT_S = 120.0  # several start at once, and spend most of it on importing
PEER_PACKAGES = ROOT / ".venv" / "peers"


class System:
    """`async with` one of its kinds; `name` is what the tables call it."""

    name: ClassVar[str]
    durable: ClassVar[bool] = True

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.id = f"{type(self).__name__.lower()}-{uuid.uuid4().hex[:6]}"

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.kill()

    async def start(self) -> None:
        raise NotImplementedError

    async def run(self, load: Load) -> list[Reply]:
        raise NotImplementedError

    def used(self) -> Used:
        raise NotImplementedError

    def kill(self) -> None:
        raise NotImplementedError


class _Module(System):
    """A module of tests/benchmarks, in a process of its own."""

    module: ClassVar[str]
    packages: ClassVar[Path | None] = None
    _served: Served | None = None

    async def start(self) -> None:
        log = self.rig.folder / f"{self.id}.log"
        packages = "" if self.packages is None else str(self.packages)
        self._served = Served(self.module, (), log, {**self.rig.environment, **self.environment()}, packages=packages)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await asyncio.to_thread(self._served.wait_ready)
        except TimeoutError:
            raise RuntimeError(f"{self.name} is not ready after {START_TIMEOUT_S:g} s; its log is {log}") from None

    def environment(self) -> dict[str, str]:
        return {}

    @property
    def served(self) -> Served:
        assert self._served is not None
        return self._served

    def used(self) -> Used:
        return used(self.served.pid)

    def kill(self) -> None:
        if self._served is not None:
            self._served.stop()


class Bare(_Module):
    name = "bare engine"
    durable = False
    module = "tests.benchmarks.bare"

    async def run(self, load: Load) -> list[Reply]:
        self.served.write(msgspec.json.encode(load))
        line = await asyncio.to_thread(self.served.read)
        return msgspec.json.decode(line, type=list[Reply])


class _OverKafka(_Module):
    @property
    def topics(self) -> tuple[str, str]:
        return f"{self.id}-requests", f"{self.id}-replies"

    async def start(self) -> None:
        await self.rig.create_topics(*self.topics)
        await super().start()

    def environment(self) -> dict[str, str]:
        requests, replies = self.topics
        return {"BENCH_REQUESTS": requests, "BENCH_REPLIES": replies}

    async def run(self, load: Load) -> list[Reply]:
        async with KafkaClient(self.rig.server, *self.topics) as client:
            return await client.run(load)


class Echo(_OverKafka):
    name = "aiokafka echo"
    module = "tests.benchmarks.peers.echo"


class FaustGenerate(_OverKafka):
    name = "Faust + generate"
    module = "tests.benchmarks.peers.faust_generate"


class QuixStreams(_OverKafka):
    name = "Quix Streams + engine"
    module = "tests.benchmarks.peers.quix"
    packages = PEER_PACKAGES


class AiokafkaBatching(_OverKafka):
    name = "aiokafka + continuous batching"
    module = "tests.benchmarks.peers.aiokafka_batching"


class FastApi(_Module):
    name = "FastAPI + engine, no Kafka"
    durable = False
    module = "tests.benchmarks.peers.fastapi_engine"

    async def start(self) -> None:
        await super().start()
        self._port = int(self.served.read())

    async def run(self, load: Load) -> list[Reply]:
        async with HttpClient(self._port) as client:
            return await client.run(load)


class Parley(System):
    """A worker as users start it, but for the name of the engine's thread. `path`: folders with more packages."""

    name = "Parley"
    module: ClassVar[str] = "tests.benchmarks.peers.parley_worker"

    def __init__(self, rig: Rig, path: Sequence[Path] = (), **settings: Any) -> None:
        super().__init__(rig)
        self.settings = Settings(
            _env_file=None,
            broker=f"kafka://{rig.server}",
            data_dir=rig.folder / self.id,
            topic_prefix=f"{self.id}-",
            app_id=self.id,
            partitions=rig.partitions,
            model=rig.model,
            max_running=rig.max_running,
            threads=rig.threads,
            **({"embedder": "none"} | settings),
        )
        environment = {**rig.environment, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
        self._worker = _NamedWorker(self.module, self.settings, rig.folder / f"{self.id}.log", **environment)

    async def start(self) -> None:
        await create_topics(self.settings)
        self._worker.start()
        await asyncio.to_thread(self._worker.wait_owning, self.rig.partitions)

    async def run(self, load: Load) -> list[Reply]:
        async with KafkaClient(self.rig.server, self.settings.topic("requests"), self.settings.topic("tokens")) as one:
            return await one.run(load)

    @property
    def store_path(self) -> Path:
        """Of partition 0."""
        return self.settings.data_dir / "tables" / f"{self.settings.group}-0"

    def used(self) -> Used:
        return used(self._worker.pid)

    def stop(self) -> None:
        """Let it end as SIGTERM ends it."""
        self._worker.stop()

    def kill(self) -> None:
        self._worker.kill()


class ParleyOfTwoLoops(Parley):
    name = "producers in a second thread"
    module = "tests.benchmarks.peers.second_loop"


class ParleyOfTwoWorkers(Parley):
    """Each has half of the partitions, and an engine."""

    name = "two workers"

    def __init__(self, rig: Rig, **settings: Any) -> None:
        super().__init__(rig, **settings)
        second = self.settings.model_copy(update={"data_dir": rig.folder / f"{self.id}-2"})
        self._second = _NamedWorker(self.module, second, rig.folder / f"{self.id}-2.log", **rig.environment)

    async def start(self) -> None:
        await super().start()
        self._second.start()
        await asyncio.to_thread(self._second.wait_owning, self.rig.partitions // 2)

    def used(self) -> Used:
        return super().used().beside(used(self._second.pid))

    def kill(self) -> None:
        self._second.kill()
        super().kill()


class _NamedWorker(WorkerProcess):
    start_timeout_s = START_TIMEOUT_S

    def __init__(self, module: str, *given: Any, **environment: str) -> None:
        super().__init__(*given, **environment)
        self.program = (sys.executable, "-m", module)  # type: ignore[misc]


PEERS: Sequence[Callable[[Rig], System]] = (FaustGenerate, QuixStreams, AiokafkaBatching, FastApi)
