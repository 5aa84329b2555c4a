"""Parley's topics in a real PostgreSQL, by a real Kafka Connect. `python -m tests.analytics` is the long version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.local.kafka import KafkaCluster
from app.wire.codec import encode
from app.wire.erasure import Erasure
from app.wire.tools import ToolCall
from app.wire.turn import Turn
from tests.analytics.connect_node import DEPLOY
from tests.analytics.records import NOW, turn_of
from tests.analytics.storm import Analytics, storm
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import module_settings

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def worker(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("worker")
    process = WorkerProcess(module_settings(kafka, folder, usage_window_s=5), folder / "worker.log").start()
    try:
        process.wait_owning(process.settings.partitions)
        yield process
    finally:
        process.kill()


@pytest.fixture(scope="module")
def analytics(
    kafka: KafkaCluster, worker: WorkerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Analytics]:
    started = Analytics(kafka, tmp_path_factory.mktemp("analytics"), worker.settings.topic_prefix)
    try:
        started.start()
        yield started
    finally:
        started.kill()


@pytest.fixture
async def client(worker: WorkerProcess) -> AsyncIterator[Client]:
    async with Client(worker.settings) as client:
        yield client


@pytest.mark.timeout(300)
async def test_rows_equal_turns_after_connect_was_killed(analytics: Analytics, client: Client) -> None:
    outcome = await storm(analytics, client, turns=150, kills=2, over_s=15.0)
    assert outcome.is_right, outcome
    assert outcome.erased > 0


async def written(client: Client, topic: str, record: Turn | Erasure) -> None:
    value, headers = encode(record)
    await client.send(topic, value, record.user_id, headers=headers)


async def until(analytics: Analytics, query: str, expected: list[tuple[Any, ...]], *values: object) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (found := analytics.postgresql.rows(query, *values)) != expected:
            assert not analytics.connect.failures("parley-postgresql"), found
            await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("prompt", "column"),
    [
        ("a\0b", "a\ufffdb"),
        (r"a\u0000b", r"a\u0000b"),
        ("a\\\0b", "a\\\ufffdb"),
        ('quotes " and \n lines', 'quotes " and \n lines'),
        ("😀 ü", "😀 ü"),
    ],
)
async def test_any_text_becomes_a_row(analytics: Analytics, client: Client, prompt: str, column: str) -> None:
    user = client.user()
    await written(client, "turns", turn_of(user, prompt=prompt, answer=prompt))
    query = "select prompt, answer from parley.turns where user_id = %s"
    await until(analytics, query, [(column, column)], user)


async def test_calls_and_categories_are_columns(analytics: Analytics, client: Client) -> None:
    user = client.user()
    call = ToolCall(id="c1", name="order", arguments='{"id": 5}')
    await written(client, "turns", turn_of(user, tool_calls=(call,), guard=("profanity", "injection")))
    query = "select tool_calls -> 0 ->> 'name', guard from parley.turns where user_id = %s"
    await until(analytics, query, [("order", ["profanity", "injection"])], user)


async def test_a_turn_that_arrives_after_its_erasure_is_refused(analytics: Analytics, client: Client) -> None:
    user = client.user()
    await written(client, "turns", turn_of(user, "before"))
    await until(analytics, "select request_id from parley.turns where user_id = %s", [("before",)], user)
    await written(client, "erasures", Erasure(user_id=user, erased_at=NOW + 10, created_at=NOW + 10))
    await until(analytics, "select count(*) from parley.turns where user_id = %s", [(0,)], user)
    await written(client, "erasures", Erasure(user_id=user, erased_at=NOW + 5, created_at=NOW + 5))
    await written(client, "turns", turn_of(user, "late", NOW + 9))
    await written(client, "turns", turn_of(user, "new", NOW + 11))
    await until(analytics, "select request_id from parley.turns where user_id = %s", [("new",)], user)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"no JSON", "invalid input syntax for type json"),
        (b"[1]", 'null value in column "user_id"'),
        (b'{"user_id": "u", "created_at": "soon"}', "cannot cast jsonb string"),
        (None, "the record has no value"),
        (b"\xff\xfe", "invalid input syntax for type json"),
    ],
)
async def test_what_is_no_turn_is_kept_with_its_reason_and_stops_nothing(
    analytics: Analytics, client: Client, value: bytes | None, reason: str
) -> None:
    user = client.user()
    partition, offset = await client.send("turns", value, user)
    query = """select reason from parley.rejected
        where topic like '%%turns' and kafka_partition = %s and kafka_offset = %s and starts_with(reason, %s)"""
    async with asyncio.timeout(PATIENCE_S):
        while not analytics.postgresql.rows(query, partition, offset, reason):
            assert not analytics.connect.failures("parley-postgresql")
            await asyncio.sleep(0.2)
    await written(client, "turns", turn_of(user))
    await until(analytics, "select count(*) from parley.turns where user_id = %s", [(1,)], user)


def test_every_question_has_an_answer(analytics: Analytics) -> None:
    statements = _statements(DEPLOY / "postgresql" / "questions.sql")
    questions = [one for one in statements if one.startswith("select")]
    assert len(questions) > 10
    with analytics.postgresql.connect() as connection:
        connection.execute("set parley.since = '365000 days'")
        for statement in statements:
            if not statement.startswith("set"):
                connection.execute(statement.encode())
        used = connection.execute(questions[0].encode()).fetchall()
    assert used, "the first question counts turns by day"


def _statements(file: Path) -> list[str]:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("--")]
    return [one.strip() for one in "\n".join(lines).split(";") if one.strip()]


async def test_the_tables_may_be_created_again(analytics: Analytics) -> None:
    before = analytics.postgresql.rows("select count(*) from parley.turns")
    analytics.postgresql.run(DEPLOY / "postgresql" / "tables.sql")
    assert analytics.postgresql.rows("select count(*) from parley.turns") == before
