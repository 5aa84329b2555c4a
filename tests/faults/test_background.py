"""The short version of `python -m tests.faults.background`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from tests.faults.background import run, settings_of


@pytest.mark.timeout(300)
async def test_a_background_response_survives_its_reader_its_gateway_and_its_worker(
    kafka: KafkaCluster, tmp_path: Path
) -> None:
    settings = await settings_of(kafka, topic_prefix=f"b{uuid.uuid4().hex[:8]}-", app_id=f"b{uuid.uuid4().hex[:8]}")
    outcome = await run(settings, tmp_path, responses=8, rounds=1)
    assert outcome.wrong == []
    assert outcome.resumed >= 1
