"""Private values on a real worker: a model behind an outside server sees placeholders, readers see the values."""

from __future__ import annotations

import json
import re
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
silence_s = 5

[guard]
pii = "{pii}"
"""

SAID = "My name is Anna Schmidt, mail anna.schmidt@example.com, card 4111 1111 1111 1111"
VALUES = ("Anna Schmidt", "anna.schmidt@example.com", "4111 1111 1111 1111")
PLACEHOLDER = re.compile(r"<([A-Z_]+)_[0-9A-Z]{8}>")


def policy_with(pii: str, outside: OutsideServer, folder: Path) -> Path:
    path = folder / "policy.toml"
    path.write_text(POLICY.format(url=outside.url, pii=pii))
    return path


@pytest.fixture(scope="module")
def worker(
    start_worker: StartWorker, outside: OutsideServer, tmp_path_factory: pytest.TempPathFactory
) -> WorkerProcess:
    return start_worker(policy=policy_with("mask", outside, tmp_path_factory.mktemp("policy")))


@pytest.fixture(scope="module")
def redacting(
    start_worker: StartWorker, outside: OutsideServer, tmp_path_factory: pytest.TempPathFactory
) -> WorkerProcess:
    return start_worker(policy=policy_with("redact", outside, tmp_path_factory.mktemp("policy")))


def found_in(text: str) -> list[str]:
    return [value for value in VALUES if value in text]


def echoed(prompt: str) -> str:
    return f"You said {prompt}. Again: {prompt}"


async def test_the_model_sees_placeholders_and_the_reader_the_values(client: Client, outside: OutsideServer) -> None:
    user = client.user()
    outside.bodies.clear()
    first = await client.asked(user, SAID, model="outside")
    second = await client.asked(user, "My card again: 4111 1111 1111 1111", model="outside")
    assert first.text == echoed(SAID)
    assert second.text == echoed("My card again: 4111 1111 1111 1111")
    seen = json.dumps(outside.bodies)
    assert found_in(seen) == []
    kinds = [found[1] for found in PLACEHOLDER.finditer(outside.bodies[0]["messages"][-1]["content"])]
    assert kinds == ["PERSON", "EMAIL_ADDRESS", "CREDIT_CARD"]
    cards = {found[0] for found in PLACEHOLDER.finditer(seen) if found[1] == "CREDIT_CARD"}
    assert len(cards) == 1, "the same value of a user has the same placeholder in each turn"
    turns = await client.turns_of(user, 2)
    assert [turn.prompt for turn in turns] == [SAID, "My card again: 4111 1111 1111 1111"]
    assert {*VALUES} <= {one.value for one in turns[0].private or ()}


async def test_with_redact_only_requests_and_tokens_have_the_values(
    redacting: WorkerProcess, outside: OutsideServer
) -> None:
    async with Client(redacting.settings) as client:
        user = client.user()
        outside.bodies.clear()
        first = await client.asked(user, SAID, model="outside")
        await client.asked(user, "And what now?", model="outside")
        assert first.text == echoed(SAID)
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
    worker: WorkerProcess, client: Client, outside: OutsideServer
) -> None:
    """Each answer is cut somewhere else."""
    outside.pause_s = 0.1  # all have begun before the first has ended
    prompts = {client.user(): "Well, " * number + SAID for number in range(8)}
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
    seen = [decode(TokenEvent, one.value, one.headers) for one in await client.records("tokens")]
    assert not [event.text for event in seen if "<" in (event.text or "")]


async def test_the_audit_and_the_log_have_no_value(worker: WorkerProcess, client: Client) -> None:
    records = [decode(AuditRecord, one.value, one.headers) for one in await client.records("audit")]
    assert records
    assert found_in(str(records)) == []
    assert found_in(worker.log.read_text()) == []
    reported = series(worker)
    assert total(reported, "parley:guard_searches_total") > total(reported, "parley:guard_failures_total") == 0
