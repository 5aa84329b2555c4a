"""Private values on a real worker: a model behind an outside server sees placeholders, readers see the values."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from app.delivery.commits.changelog import changelog_topic
from app.wire.audit import AuditRecord
from app.wire.codec import decode
from app.wire.event import TokenEvent
from tables.records import Table
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_health import series, total
from tests.unit.models.remote.outside import OutsideServer

POLICY = """
[models.outside]
engine = "openai"
urls = ["{url}"]
model = "served-name"
dialect = "vllm"
silence_s = 60

[guard]
pii = "{pii}"
pii_entities = ["EMAIL_ADDRESS", "CREDIT_CARD"]
"""
"""Names take a library that takes seconds to load: with them, test_masked_index.py."""

SAID = "My name is Anna Schmidt, mail anna.schmidt@example.com, card 4111 1111 1111 1111"
CONTACT = SAID.partition(", ")[2]
VALUES = ("Anna Schmidt", "anna.schmidt@example.com", "4111 1111 1111 1111")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy") / "policy.toml"


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, outside: OutsideServer, policy: Path) -> WorkerProcess:
    """It redacts, until a test lets it mask."""
    policy.write_text(POLICY.format(url=outside.url, pii="redact"))
    return start_worker(policy=policy)


def found_in(text: str) -> list[str]:
    return [value for value in VALUES if value in text]


def echoed(prompt: str) -> str:
    return f"You said {prompt}. Again: {prompt}"


async def test_with_redact_only_requests_and_tokens_have_the_values(client: Client, outside: OutsideServer) -> None:
    user = client.user()
    outside.bodies.clear()
    first = await client.asked(user, CONTACT, model="outside")
    await client.asked(user, "And what now?", model="outside")
    assert first.text == echoed(CONTACT)
    assert found_in(json.dumps(outside.bodies)) == []
    for topic in ("turns", "audit", "usage"):
        for record in await client.records(topic):
            assert found_in(str(record.value)) == [], topic
    for table in (Table.CONVERSATIONS, Table.ENDED, Table.AUDIT):
        name = changelog_topic(client.settings, table).removeprefix(client.settings.topic_prefix)
        records = await client.records(name)
        assert records
        assert [one for record in records for one in found_in(str(record.value))] == [], name


async def test_a_worker_that_is_killed_within_a_placeholder_costs_no_character(
    worker: WorkerProcess, client: Client, outside: OutsideServer, policy: Path
) -> None:
    """Each answer is cut somewhere else."""
    policy.write_text(POLICY.format(url=outside.url, pii="mask"))
    await asyncio.to_thread(worker.wait_logged, b"is in force")
    outside.bodies.clear()
    outside.pause_s = 0.1  # all have begun before the first has ended
    prompts = {client.user(): "Well, " * number + CONTACT for number in range(8)}
    try:
        requests = {user: await client.ask(user, prompt, model="outside") for user, prompt in prompts.items()}
        for user, request_id in requests.items():
            await client.begun(user, request_id, 4)
        worker.kill()
        outside.pause_s = 0.0
        worker.start()
        for user, request_id in requests.items():
            answer = await client.answer(user, request_id)
            assert answer.text == echoed(prompts[user])
            assert answer.end.finish_reason == "stop"
    finally:
        outside.pause_s = 0.0
    assert outside.bodies
    assert found_in(json.dumps(outside.bodies)) == []
    for user, request_id in requests.items():
        (turn,) = await client.turns_of(user, 1)
        assert (turn.prompt, turn.request_id) == (prompts[user], request_id)
        assert {*VALUES[1:]} <= {one.value for one in turn.private or ()}
    seen = [decode(TokenEvent, one.value, one.headers) for one in await client.records("tokens")]
    assert not [event.text for event in seen if "<" in (event.text or "")]


async def test_the_audit_and_the_log_have_no_value(worker: WorkerProcess, client: Client) -> None:
    records = [decode(AuditRecord, one.value, one.headers) for one in await client.records("audit")]
    assert records
    assert found_in(str(records)) == []
    assert found_in(worker.log.read_text()) == []
    reported = series(worker)
    assert total(reported, "parley:guard_searches_total") > total(reported, "parley:guard_failures_total") == 0
