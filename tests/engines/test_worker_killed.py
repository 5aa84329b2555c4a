"""A worker with vLLM in its process is killed while answers of all kinds are under way, and started again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from app.local.kafka import KafkaCluster
from tests.engines.conftest import SMALL
from tests.engines.processes import children_of
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LIST = {"type": "array", "items": {"type": "integer", "maximum": 99999}, "minItems": 60, "maxItems": 60}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "max_tokens": 250, "ignore_eos": True},
    "sampled": {"temperature": 2, "seed": 5, "max_tokens": 250, "ignore_eos": True},
    "json": {
        "temperature": 2,
        "seed": 6,
        "max_tokens": 400,
        "response_format": {"type": "json_schema", "json_schema": {"name": "numbers", "schema": LIST}},
    },
    "regex": {
        "temperature": 2,
        "seed": 7,
        "max_tokens": 400,
        "response_format": {"type": "regex", "regex": "([a-z]{3,9} ){80}"},
    },
}
EACH = 4
QUESTION = "Hi, I am Nina and my order number is 48213."


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
        whole = {}
        for kind, fields in KINDS.items():
            user = client.user()
            whole[kind] = await client.answer(user, await client.ask(user, QUESTION, **fields), 300)
            assert whole[kind].end.error is None, kind
        asked = []
        for kind, fields in KINDS.items():
            for _ in range(EACH):
                user = client.user()
                asked.append((kind, user, await client.ask(user, QUESTION, **fields)))
        begun = await asyncio.gather(*(client.begun(user, request, 3) for _, user, request in asked))
        below = children_of(worker.pid)
        worker.kill()
        async with asyncio.timeout(60):
            while any(process.lives for process in below):
                await asyncio.sleep(0.1)
        worker.start()
        worker.wait_joined()
        interrupted = dict.fromkeys(KINDS, 0)
        for (kind, user, request), part in zip(asked, begun, strict=True):
            answer = await client.answer(user, request, 600)
            assert answer.end.finish_reason == whole[kind].end.finish_reason, kind
            assert (answer.text, answer.tokens) == (whole[kind].text, whole[kind].tokens), kind
            interrupted[kind] += any(event.epoch != part.epoch for event in answer.segments)
        print("interrupted and equal:", interrupted)
        assert all(interrupted.values())
