"""What a worker reports about a broker that goes away and comes back while no request is open."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.conftest import module_settings


def asked(worker: WorkerProcess, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{worker.web_port}{path}", timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def until(worker: WorkerProcess, path: str, code: int, patience_s: float = 120) -> dict[str, Any]:
    deadline = time.monotonic() + patience_s
    while (reported := asked(worker, path))[0] != code:
        assert time.monotonic() < deadline, reported
        time.sleep(0.2)
    return reported[1]


@pytest.mark.slow
def test_a_broker_that_is_gone_is_told_by_readyz_alone_and_only_while_it_is(
    start_kafka: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    kafka = start_kafka()
    with WorkerProcess(module_settings(kafka, tmp_path), tmp_path / "worker.log") as worker:
        worker.wait_owning(worker.settings.partitions)
        until(worker, "/readyz", 200)
        kafka.kill()
        reported = until(worker, "/readyz", 503)
        assert "the broker has not answered" in reported["status"]
        assert asked(worker, "/healthz")[0] == 200
        kafka.start()
        assert until(worker, "/readyz", 200)["status"] == "ok"
