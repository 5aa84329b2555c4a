"""A worker that is asked to end while Kafka is unreachable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.conftest import module_settings

SOON_S = 40.0  # Faust's requests to a broker that is away take a minute to be given up


@pytest.mark.slow
def test_a_worker_ends_without_a_goodbye_that_nobody_hears(
    start_kafka: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    kafka = start_kafka()
    with WorkerProcess(module_settings(kafka, tmp_path), tmp_path / "worker.log") as worker:
        worker.wait_owning(worker.settings.partitions)
        kafka.kill()
        assert worker.stop(timeout_s=SOON_S) == 0
        assert "has not confirmed that this worker leaves" in worker.log.read_text()
