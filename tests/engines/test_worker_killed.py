"""A worker with vLLM in its process is killed while answers of all kinds are under way, and started again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from app.local.kafka import KafkaCluster
from tests.engines.conftest import SMALL
from tests.engines.kills import KINDS, ROUNDS, SAME, TOOLS, Tally, begin, whole_answers
from tests.engines.processes import children_of
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

ALL = {**KINDS, "tools": TOOLS}


class VllmWorker(WorkerProcess):
    start_timeout_s: ClassVar[float] = 900.0


@pytest.fixture(scope="module")
def worker(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    folder: Path = tmp_path_factory.mktemp("worker")
    settings = module_settings(
        kafka, folder, engine="vllm", model="demo", dtype="float32", kv_cache_gb=0.25, vllm_args=json.dumps(SMALL)
    )
    with VllmWorker(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


async def test_every_answer_goes_on_with_the_same_words_and_no_process_is_left(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        tally = Tally(await whole_answers(client, ALL))
        for number in range(ROUNDS):
            under_way = await begin(client, ALL, tokens=3)
            below = children_of(worker.pid)
            worker.kill()
            async with asyncio.timeout(60):
                while any(process.lives for process in below):
                    await asyncio.sleep(0.1)
            worker.start()
            worker.wait_joined()
            await tally.add(client, under_way)
            print(f"\nvLLM in the process, the worker killed {number + 1} times:\n{tally.table()}", flush=True)
        assert {kind: set(found) for kind, found in tally.outcomes.items()} == {kind: {SAME} for kind in ALL}
