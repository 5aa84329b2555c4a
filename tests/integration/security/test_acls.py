"""The ACLs of docs/topics.md: what each program may do on a Kafka that gives these rights and no others."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError
from aiokafka.protocol.admin import CreateAclsRequest

from app.kafka.topics import create_topics
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.security.guarded_kafka import PASSWORD, GuardedKafka

PAGE = (Path(__file__).parents[3] / "docs" / "topics.md").read_text()
WORKER, GATEWAY, BACKEND, READER, TOOLS = USERS = ("parley-worker", "parley-gateway", "backend", "reader", "tools")
RESOURCES = {"topic": 2, "group": 3, "transactional_id": 5}
PATTERNS = {"literal": 3, "prefixed": 4}
OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10, "AlterConfigs": 11}
ALLOW = 3


def creations() -> list[tuple[int, str, int, str, str, int, int]]:
    """What the lines of the page ask Kafka for."""
    options = argparse.ArgumentParser()
    options.add_argument("--add", action="store_true")
    options.add_argument("--allow-principal")
    options.add_argument("--operation", action="append", choices=OPERATIONS)
    options.add_argument("--resource-pattern-type", default="literal", choices=PATTERNS)
    for kind in RESOURCES:
        options.add_argument(f"--{kind.replace('_', '-')}", action="append", default=[])
    commands = re.findall(r"^kafka-acls (.*?[^\\])\n", PAGE, re.DOTALL | re.MULTILINE)
    given = [options.parse_args(shlex.split(command.replace("\\\n", " "))) for command in commands]
    return [
        (
            RESOURCES[kind],
            name,
            PATTERNS[one.resource_pattern_type],
            one.allow_principal,
            "*",
            OPERATIONS[may],
            ALLOW,
        )
        for one in given
        for kind in RESOURCES
        for name in getattr(one, kind)
        for may in one.operation
    ]


async def add_acls(broker: str) -> None:
    client = AIOKafkaClient(bootstrap_servers=broker)
    await client.bootstrap()
    try:
        for creation in creations():
            reply = await client.send(client.get_random_node(), CreateAclsRequest(*creation))
            assert [code for code, *_ in reply.creation_responses] == [0]
    finally:
        await client.close()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    guarded = GuardedKafka(tmp_path_factory.mktemp("acls") / "kafka", USERS)
    try:
        guarded.node.start()
        asyncio.run(add_acls(guarded.node.address))
        yield guarded
    finally:
        guarded.node.kill()


def settings_of(kafka: GuardedKafka, user: str, **values: Any) -> Settings:
    login = {"kafka_sasl_mechanism": "SCRAM-SHA-512", "kafka_username": user, "kafka_password": PASSWORD}
    usual = {"broker": kafka.by_login, "kafka_tls": True, "kafka_ca_file": kafka.ca_file, "topic_prefix": "chat-"}
    worker = {"partitions": 2, "engine": "paced", "paced_tokens_per_s": 200, "embedder": "none"}
    return Settings(_env_file=None, **{**usual, **login, **worker, **values})


@pytest.fixture(scope="module")
def worker(kafka: GuardedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("worker")
    settings = settings_of(kafka, WORKER, data_dir=folder / "data", usage_window_s=1)
    asyncio.run(create_topics(settings))
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker
        assert worker.stop() == 0
        assert "AuthorizationFailed" not in worker.log.read_text()


@pytest.fixture
async def backend(kafka: GuardedKafka, worker: WorkerProcess) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(**settings_of(kafka, BACKEND).cluster.options()) as producer:
        yield producer


async def ask(backend: AIOKafkaProducer, **fields: Any) -> None:
    request = {"user_id": "ann", "prompt": "one two three", "max_tokens": 5, **fields}
    await backend.send_and_wait("chat-requests", json.dumps(request).encode(), key=b"ann")


async def ended(kafka: GuardedKafka, request_id: str) -> dict[str, Any]:
    options = settings_of(kafka, READER).cluster.options()
    reading = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer("chat-tokens", **options, **reading) as tokens, asyncio.timeout(120):
        async for record in tokens:
            event: dict[str, Any] = json.loads(record.value)
            if event.get("request_id") == request_id and event["type"] in {"done", "error"}:
                return event
    raise AssertionError


async def test_a_backend_asks_and_a_reader_reads(kafka: GuardedKafka, backend: AIOKafkaProducer) -> None:
    await ask(backend, request_id="asked")
    assert (await ended(kafka, "asked"))["finish_reason"] == "length"


async def test_a_tool_program_shares_the_calls_and_writes_results(kafka: GuardedKafka, worker: WorkerProcess) -> None:
    options = settings_of(kafka, TOOLS).cluster.options()
    async with (
        AIOKafkaConsumer("chat-tool-calls", **options, group_id="parley-tools", enable_auto_commit=False) as calls,
        AIOKafkaProducer(**options) as results,
    ):
        async with asyncio.timeout(120):
            while not calls.assignment():
                await calls.getmany(timeout_ms=200)
        await calls.commit(dict.fromkeys(calls.assignment(), 0))
        await results.send_and_wait("chat-tool-results", b"{}", key=b"ann")


async def test_gateways_ask_read_search_the_log_and_erase(
    kafka: GuardedKafka, worker: WorkerProcess, tmp_path: Path
) -> None:
    settings = settings_of(kafka, GATEWAY, data_dir=tmp_path)
    with GatewayProcess(settings, tmp_path / "gateway.log", is_shared=True) as gateway:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60, params={"user_id": "bob"}) as http:
            asked = (await http.post("/v1/requests", json={"prompt": "one two", "max_tokens": 5})).json()
            assert "done" in (await http.get(f"/v1/requests/{asked['request_id']}/events")).text
            async with asyncio.timeout(120):  # the turn comes a moment after the end
                while (await http.get("/v1/conversations/default")).status_code != 200:
                    await asyncio.sleep(0.1)
            assert (await http.delete("/v1/users/bob")).status_code == 202
            assert (await http.get("/v1/users/bob/erasure")).status_code == 200
        assert gateway.stop() == 0
    assert "AuthorizationFailed" not in gateway.log.read_text()


@pytest.mark.parametrize(
    ("user", "topic"), [(READER, "requests"), (BACKEND, "turns"), (GATEWAY, "tokens"), (TOOLS, "controls")]
)
async def test_nothing_else_is_written(kafka: GuardedKafka, worker: WorkerProcess, user: str, topic: str) -> None:
    async with AIOKafkaProducer(**settings_of(kafka, user).cluster.options()) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait(f"chat-{topic}", b"{}", key=b"ann")
