"""A writer leaves its transaction open: the worker names the partition that waits, once, and goes on afterwards."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer

from app.wire.event import EventType
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client

LINE = "an open transaction has held back"


async def test_a_partition_that_waits_for_an_open_transaction_is_named(worker: WorkerProcess, client: Client) -> None:
    await client.asked("nina", max_tokens=2)
    topic, partition = client.settings.topic("requests"), client.partition("nina")
    async with AIOKafkaProducer(**client.settings.cluster.options(), transactional_id="a-forgetful-writer") as writer:
        await writer.begin_transaction()
        open_at = (await writer.send_and_wait(topic, b"{}", key=b"nina", partition=partition)).offset
        request_id = await client.ask("nina", max_tokens=2)
        async with asyncio.timeout(120):
            while LINE not in worker.log.read_text():
                await asyncio.sleep(0.1)
        await asyncio.sleep(3)
        await writer.abort_transaction()
    end = (await client.answer("nina", request_id)).end
    assert end is not None
    assert end.type is EventType.DONE
    (line,) = [line for line in worker.log.read_text().splitlines() if LINE in line]
    assert f"{topic}[{partition}] offset {open_at}: " in line
    assert "WARN" in line
