"""The short version of `python -m tests.fuzz`."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.fuzz.mutation import mutated
from tests.fuzz.run import fuzz, policy_in
from tests.integration.gateway.gateway_process import NO_LIMIT_OF_ERASURES, GatewayProcess
from tests.integration.worker.conftest import module_settings


def test_the_same_seed_makes_the_same_rubbish() -> None:
    good = json.dumps({"a": [1, {"b": "c"}]}).encode()
    one, other = random.Random(3), random.Random(3)
    made = [mutated(good, one) for _ in range(200)]
    assert made == [mutated(good, other) for _ in range(200)]
    assert len(set(made)) > 100


def test_rubbish_fails_neither_the_gateway_nor_the_worker(kafka: KafkaCluster, tmp_path: Path) -> None:
    values = {
        "gateway_requests_per_min": 0,
        "gateway_wait_s": 0.2,
        "policy": policy_in(tmp_path),
    }
    settings = module_settings(kafka, tmp_path, **values)
    with (
        WorkerProcess(settings, tmp_path / "worker.log") as worker,
        GatewayProcess(settings, tmp_path / "gateway.log", constants=NO_LIMIT_OF_ERASURES) as gateway,
    ):
        worker.wait_owning(settings.partitions)
        found = asyncio.run(fuzz(worker, gateway, 15, seed=11))
    assert found.faults == []
    assert found.replies.total() > 50
    assert found.replies["unfinished"] < 5
