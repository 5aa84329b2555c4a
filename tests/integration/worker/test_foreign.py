"""Programs that know nothing of Parley: their records are answered on topics of theirs.

Each program sends what it has always sent: JSON of its own shape, without a key, to any partition.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from app.settings import Settings
from app.wire.codec import INTAKE_FROM
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker

POLICY = """
[[intake]]                                    # {"request_id": "abc123", "prompt": ..., "timestamp": ...}
topic = "llm-requests-RUN"
fields = { request_id = "request_id", prompt = "prompt" }
user_id = "blog"
constants = { max_tokens = 3 }
[[egress]]
topic = "llm-tokens-RUN"
per = "token"
intake = "llm-requests-RUN"
fields = { id = "request_id", index = "index", token = "text", end = "finish_reason" }

[[intake]]                                    # {"userId": "123", "text": "..."}
topic = "user-queries-RUN"
fields = { user_id = "userId", prompt = "text" }
constants = { max_tokens = 3 }
[[intake]]                                    # {"id": "1", "prompt": "Hi", "max_tokens": 128}
topic = "requests-RUN"
fields = { request_id = "id", prompt = "prompt", max_tokens = "max_tokens" }
user_id = "page"

[[intake]]                                    # {"query": {"text": ...}, "session": 7}
topic = "cs-queries-RUN"
fields = { prompt = "query.text", user_id = "session", max_tokens = "n" }
tenant = "shop"
[[egress]]
topic = "cs-responses-RUN"
fields = { session = "user_id", answer = "answer", tokens = "usage.completion_tokens", tenant = "tenant" }
"""


class Run:
    """The topics of one run, and a program's way to them."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.name = name

    def topic(self, name: str) -> str:
        return f"{name}-{self.name}"

    async def produce(self, topic: str, *values: Any, key: bytes | None = None, headers: Any = ()) -> list[Any]:
        producer = AIOKafkaProducer(**self.settings.cluster.options())
        await producer.start()
        try:
            raw = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
            return [await producer.send_and_wait(self.topic(topic), one, key=key, headers=list(headers)) for one in raw]
        finally:
            await producer.stop()

    async def create(self, topic: str, partitions: int) -> None:
        admin = AIOKafkaAdminClient(**self.settings.cluster.options())
        await admin.start()
        try:
            await admin.create_topics([NewTopic(self.topic(topic), partitions, 1)])
        finally:
            await admin.close()

    async def consume(self, topic: str, wanted: int) -> list[tuple[str, dict[str, Any]]]:
        """The first records of the topic, as a program of others reads them."""
        consumer = AIOKafkaConsumer(
            self.topic(topic),
            **self.settings.cluster.options(),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            found: list[tuple[str, dict[str, Any]]] = []
            async with asyncio.timeout(PATIENCE_S):
                while len(found) < wanted:
                    for batch in (await consumer.getmany(timeout_ms=100)).values():
                        found += [((one.key or b"").decode(), json.loads(one.value)) for one in batch]
            return found
        finally:
            await consumer.stop()


@pytest.fixture(scope="module")
def name() -> str:
    return uuid.uuid4().hex[:8]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY.replace("RUN", name))
    return path


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, policy: Path) -> WorkerProcess:
    return start_worker(policy=policy)


@pytest.fixture
def run(worker: WorkerProcess, name: str) -> Run:
    return Run(worker.settings, name)


@pytest.fixture
async def client(worker: WorkerProcess) -> AsyncIterator[Client]:
    async with Client(worker.settings) as client:
        yield client


async def test_a_reader_that_wants_a_record_a_token_gets_them_and_the_end(run: Run, client: Client) -> None:
    await run.produce("llm-requests", {"request_id": "live", "prompt": "Explain it."})
    answer = await client.answer("blog", "live")
    records: list[dict[str, Any]] = []
    while not any(one["end"] for one in records):
        found = await run.consume("llm-tokens", len(records) + 1)
        records = [record for key, record in found if key == "blog" and record["id"] == "live"]
    indices = [one["index"] for one in records]  # a busy worker puts several tokens into one event
    assert (indices[0], indices, indices[-1]) == (0, sorted({*indices}), 3)
    assert "".join(one["token"] or "" for one in records) == answer.text
    assert [one["end"] for one in records] == [*[None] * (len(records) - 1), "length"]


async def test_names_lead_into_objects_numbers_are_ids_and_a_tenants_users_are_its_own(
    run: Run, client: Client
) -> None:
    trace = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    await run.produce("cs-queries", {"query": {"text": "Hi"}, "session": 7, "n": 2}, headers=[trace])
    (turn,) = await client.turns_of("shop/7", 1)
    assert turn.tenant == "shop"
    (request,) = [one for one in await client.records("requests") if one.key == b"shop/7"]
    assert request.partition == client.partition("shop/7")
    assert trace in request.headers
    assert any(name == INTAKE_FROM for name, _ in request.headers)
    answers = [record for key, record in await run.consume("cs-responses", 1) if key == "shop/7"]
    while not answers:  # this topic has the answers to all
        answers = [record for key, record in await run.consume("cs-responses", 2) if key == "shop/7"]
    assert answers == [{"session": "shop/7", "answer": turn.answer, "tokens": 2, "tenant": "shop"}]


async def test_a_record_that_gives_no_request_is_a_dead_letter_with_its_cause(
    run: Run, client: Client, worker: WorkerProcess
) -> None:
    (at,) = await run.produce("user-queries", {"userid": "123", "Text": "Hi"}, key=None)
    source = (at.topic.encode(), b"%d" % at.partition, b"%d" % at.offset)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            headers = [dict(letter.headers) for letter in await client.records("dead-letters")]
            places = [(one["source-topic"], one["source-partition"], one["source-offset"]) for one in headers]
            if source in places:
                break
            await asyncio.sleep(0.1)
    message = headers[places.index(source)]["error-message"].decode()
    assert message == "the record has no `text` (prompt) and no `userId` (user_id); it has `userid` and `Text`"
    assert f"{at.topic}[{at.partition}]@{at.offset} is refused: invalid_request: {message}" in worker.log.read_text()


async def test_an_intake_that_the_policy_gains_is_read_and_one_that_it_loses_is_not(
    run: Run, policy: Path, client: Client, worker: WorkerProcess
) -> None:
    before = policy.read_text()
    await run.create("late", 3)
    await run.produce("late", {"q": "early", "u": "late"})
    late = f'[[intake]]\ntopic = "{run.topic("late")}"\nfields = {{ prompt = "q", user_id = "u" }}\n'
    policy.write_text(before + late)
    (turn,) = await client.turns_of("late", 1)
    assert turn.prompt == "early"
    policy.write_text(before)
    in_force = "has changed and is in force"
    async with asyncio.timeout(PATIENCE_S):
        while worker.log.read_text().count(in_force) < 2:
            await asyncio.sleep(0.1)
    await run.produce("late", {"q": "unread", "u": "late"})
    await run.produce("requests", {"id": "after", "prompt": "Hi", "max_tokens": 2})
    await client.answer("page", "after")
    assert [turn.prompt for turn in await client.turns("late")] == ["early"]
    policy.write_text(before + late)
    assert [turn.prompt for turn in await client.turns_of("late", 2)] == ["early", "unread"]
