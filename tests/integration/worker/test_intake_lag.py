"""What waits on a topic of others is seen."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_health import series, total

LAG = "parley:intake_lag_records"
POLICY = """
[[intake]]
topic = "TOPIC"
fields = { prompt = "text" }
user_id = "u"
constants = { max_tokens = 4 }
"""


async def test_records_that_are_no_requests_yet_are_a_metric(start_worker: StartWorker, tmp_path: Path) -> None:
    """One after the other, at 100 tokens/s: the lag is there for more than half a minute."""
    topic = f"queries-{uuid.uuid4().hex[:8]}"
    (tmp_path / "policy.toml").write_text(POLICY.replace("TOPIC", topic))
    how: dict[str, Any] = {"policy": tmp_path / "policy.toml", "max_in_flight": 1, "partitions": 1}
    worker = await asyncio.to_thread(start_worker, **how)
    async with AIOKafkaProducer(**worker.settings.cluster.options()) as producer:
        for _ in range(1000):
            await producer.send(topic, json.dumps({"text": "hi"}).encode())
        await producer.flush()
    async with asyncio.timeout(120):
        while LAG not in (found := await asyncio.to_thread(series, worker)) or total(found, LAG, topic=topic) < 100:
            await asyncio.sleep(0.2)
    async with asyncio.timeout(240):
        while total(await asyncio.to_thread(series, worker), LAG, topic=topic):
            await asyncio.sleep(0.5)
