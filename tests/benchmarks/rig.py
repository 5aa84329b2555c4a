"""What all systems of one run share: a Kafka, a model, a folder, and how the machine's cores are given out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Rig:
    """`server` is host:port. With `engine_core` the engine's thread has that core and everything else `other_core`."""

    server: str
    folder: Path
    model: str = "demo"
    brokers: tuple[int, ...] = ()  # process ids
    max_running: int = 128
    partitions: int = PARTITIONS
    engine_core: int | None = None
    other_core: int | None = None

    @property
    def threads(self) -> int:
        return max(1, len(os.sched_getaffinity(0)) - 1)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the measured programs."""
        environment = {
            "BENCH_SERVER": self.server,
            "BENCH_MODEL": self.model,
            "BENCH_MAX_RUNNING": str(self.max_running),
            "BENCH_THREADS": str(self.threads),
            "OMP_NUM_THREADS": str(self.threads),
        }
        if self.engine_core is not None and self.other_core is not None:
            environment |= {"BENCH_ENGINE_CORE": str(self.engine_core), "BENCH_OTHER_CORE": str(self.other_core)}
        return environment

    async def create_topics(self, *names: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.server)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, self.partitions, 1) for name in names])
        finally:
            await admin.close()
