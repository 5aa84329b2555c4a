"""What one user sends, however much and however long its answers are, does not delay another user."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from app.wire.codec import decode
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent
from tests.faults.load import TOOLS
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

MAX_IN_FLIGHT = 2
FLOOD = 300


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker) -> WorkerProcess:
    return start_worker(max_in_flight=MAX_IN_FLIGHT, partitions=1)


async def at_once(client: Client, *requests: dict[str, Any]) -> None:
    """Send them in one batch: the worker gets all of them together."""
    async with AIOKafkaProducer(**client.settings.cluster.options(), max_batch_size=1 << 20) as producer:
        batch = producer.create_batch()
        for request in requests:
            value = json.dumps({"prompt": "hello", **request}).encode()
            assert batch.append(key=request["user_id"].encode(), value=value, timestamp=None) is not None
        await (await producer.send_batch(batch, client.settings.topic("requests"), partition=0))


async def test_a_flood_of_one_user_delays_another_by_a_few_answers(client: Client) -> None:
    many, other = client.user(), client.user()
    flood: list[dict[str, Any]] = [
        {"request_id": f"flood-{number}", "user_id": many, "conversation_id": f"c{number}", "max_tokens": 5}
        for number in range(FLOOD)
    ]
    last = {"request_id": "other", "user_id": other, "max_tokens": 1}
    await at_once(client, *flood, last)
    answer = await client.answer(other, "other")
    assert answer.end is not None
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    first = next(at for at, event in enumerate(events) if event.user_id == other)
    before = {event.request_id for event in events[:first] if event.user_id == many and event.tokens}
    assert len(before) < FLOOD / 3, "the topic was read no further than to the flood"
    turns = await client.turns_of(many, FLOOD)
    assert len({turn.request_id for turn in turns}) == len(turns) == FLOOD


async def test_answers_that_wait_for_tools_are_bounded_by_user_and_delay_nobody(client: Client) -> None:
    many, other = client.user(), client.user()
    waiting = {"tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 3_600_000}
    most = 8 * MAX_IN_FLIGHT
    asked = [
        await client.ask(many, max_tokens=2, conversation_id=f"c{number}", **waiting)
        for number in range(most + 2 * MAX_IN_FLIGHT)
    ]
    answer = await client.asked(other, max_tokens=1)
    assert answer.end is not None
    assert answer.end.error is None
    refused = await client.answer(many, asked[-1])
    assert refused.end is not None
    assert refused.end.error is not None
    assert refused.end.error.code == ErrorCode.OVERLOADED
    assert str(most) in refused.end.error.message
    plain = await client.asked(many, max_tokens=1)
    assert plain.end is not None
    assert plain.end.error is None
