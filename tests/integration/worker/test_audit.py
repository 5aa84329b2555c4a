"""`audit` on a real worker: one record for whatever ends, chained; and what `parley audit` says of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from app.delivery.commits.audit_chain import hash_of
from app.delivery.commits.changelog import create_changelogs
from app.kafka.topics import create_topics
from app.settings import Settings
from app.wire.audit import AuditAction, AuditRecord
from app.wire.codec import decode, encode
from tests.faults.worker_process import WorkerProcess
from tests.integration.commands.terminal import Terminal
from tests.integration.worker.client import PATIENCE_S, Client

PROMPT = "my secret is blue-42"


async def audited(client: Client, user: str, count: int = 1) -> list[AuditRecord]:
    """The user's records once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            records = [decode(AuditRecord, record.value, record.headers) for record in await client.records("audit")]
            if len(mine := [record for record in records if record.user_id == user]) >= count:
                return mine
            await asyncio.sleep(0.1)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def test_an_answer_leaves_who_when_which_and_digests_and_no_text(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    user = client.user()
    answer = await client.asked(user, PROMPT, max_tokens=3, tenant="acme")
    (record,) = await audited(client, user)
    assert (record.action, record.outcome, record.tenant) == (AuditAction.REQUEST, "length", "acme")
    assert (record.request_id, record.conversation_id) == (answer.request_id, "default")
    assert (record.model_version, record.completion_tokens) == ("paced@1", 3)
    assert record.prompt_sha256 != sha256(PROMPT), "nobody who reads `audit` alone can try texts"
    terminal = Terminal(worker.settings, tmp_path)
    for text, found in ((PROMPT, record.prompt_sha256), (answer.text, record.answer_sha256)):
        (tmp_path / "text").write_text(text)
        shown = await terminal.run("audit", "digest", "--user", user, str(tmp_path / "text"))
        assert (shown.out.strip(), shown.err) == (found, "")
    for raw in await client.records("audit"):
        assert b"blue-42" not in raw.value
        assert answer.text.encode() not in raw.value


async def test_every_other_end_leaves_one_record_too(client: Client) -> None:
    user = client.user()
    await client.asked(user, "hello", model="unknown")
    await audited(client, user, 1)
    await client.asked(user, "", max_tokens=1)
    await audited(client, user, 2)
    request_id = await client.ask(user, "hello", max_tokens=1)
    await client.answer(user, request_id)
    await client.ask(user, "hello", request_id=request_id, max_tokens=1)  # a duplicate ends nothing
    await client.send("requests", b"{not json", user)
    await client.send("controls", {"type": "erase", "user_id": user}, user)
    found = [(one.action.value, one.outcome) for one in await audited(client, user, 5)]
    assert found[:-2] == [("request", "model_not_found"), ("refusal", "invalid_request"), ("request", "length")]
    assert sorted(found[-2:]) == [("erasure", "done"), ("refusal", "invalid_request")]


async def test_a_killed_worker_continues_its_chains(worker: WorkerProcess, client: Client, tmp_path: Path) -> None:
    await client.asked(client.user(), "hello", max_tokens=1)
    worker.kill()
    worker.start()
    users = [client.user_of(number) for number in (0, 1, 0, 1)]
    for user in users:
        await client.asked(user, "hello", max_tokens=1)
        await audited(client, user)
    ended = await Terminal(worker.settings, tmp_path).run("audit", "verify")
    assert (ended.code, ended.out) == (0, "")
    assert "records in 2 chains: complete and unchanged" in ended.err


async def test_the_records_are_shown(worker: WorkerProcess, client: Client, tmp_path: Path) -> None:
    user = client.user()
    await client.asked(user, "hello", max_tokens=2, tenant="lab")
    await audited(client, user)
    terminal = Terminal(worker.settings, tmp_path)
    shown = await terminal.run("audit", "show", "--user", user)
    assert "length" in shown.out
    assert user in shown.out
    (line,) = (await terminal.run("audit", "show", "--tenant", "lab", "--json")).out.splitlines()
    assert json.loads(line)["user_id"] == user
    assert "no audit records" in (await terminal.run("audit", "show", "--user", "stranger")).err


@pytest.fixture
async def copy(worker: WorkerProcess, client: Client) -> Settings:
    """Topics of another prefix with the same changelog of the chains' heads; `audit` is empty."""
    settings = worker.settings.model_copy(update={"topic_prefix": f"copy-{worker.settings.topic_prefix}"})
    await create_topics(settings)
    await create_changelogs(settings)
    async with AIOKafkaProducer(**settings.cluster.options()) as producer:
        name = f"{settings.app_id}-audit-changelog"
        for record in await client.records(name):
            await producer.send_and_wait(settings.topic(name), record.value, key=record.key, partition=record.partition)
    return settings


async def test_a_changed_topic_and_a_cut_tail_are_found_also_against_a_seal(
    worker: WorkerProcess, client: Client, copy: Settings, tmp_path: Path
) -> None:
    private, public, seal = (str(tmp_path / name) for name in ("private.pem", "public.pem", "seal.json"))
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    sealed = await Terminal(copy, tmp_path).run("audit", "seal", "--key", private, seal)
    assert "the end was cut" in sealed.err or "were deleted" in sealed.err
    records = await client.records("audit")
    victim = max(range(len(records)), key=lambda at: records[at].offset)  # the last one of its partition
    async with AIOKafkaProducer(**copy.cluster.options()) as producer:
        for at, record in enumerate(records):
            value = record.value if at != victim else record.value.replace(b'"outcome":"', b'"outcome":"x')
            await producer.send_and_wait(copy.topic("audit"), value, key=record.key, partition=record.partition)
    found = await Terminal(copy, tmp_path).run("audit", "verify")
    assert found.code == 1
    assert f"partition {records[victim].partition}, offset" in found.out
    assert "was changed" in found.out
    assert "1 faults in 2 chains" in found.err

    whole = Terminal(worker.settings, tmp_path)
    assert (await whole.run("audit", "seal", "--key", private, seal)).code == 0
    checked = await whole.run("audit", "verify", "--seal", seal, "--key", public)
    assert (checked.code, checked.out) == (0, "")
    other = await Terminal(copy, tmp_path).run("audit", "verify", "--seal", seal, "--key", public)
    assert (other.code, "the seal is of the topic" in other.err) == (2, True)


async def test_a_forged_record_at_the_end_is_found_and_not_sealed(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    last = max(await client.records("audit"), key=lambda record: record.offset)
    forged, headers = encode(
        AuditRecord(
            action=AuditAction.ADMIN,
            outcome="erase nina",
            user_id="boss",
            at=1,
            sequence=decode(AuditRecord, last.value, last.headers).sequence + 1,
            previous=hash_of(last.value),
        )
    )
    async with AIOKafkaProducer(**worker.settings.cluster.options()) as producer:
        await producer.send_and_wait(last.topic, forged, key=b"boss", headers=headers, partition=last.partition)
    terminal = Terminal(worker.settings, tmp_path)
    found = await terminal.run("audit", "verify")
    assert (found.code, "were added: no worker wrote them" in found.out) == (1, True)
    private = str(tmp_path / "private.pem")
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    sealed = await terminal.run("audit", "seal", "--key", private, str(tmp_path / "seal.json"))
    assert (sealed.code, "were added" in sealed.err) == (1, True)
    assert not (tmp_path / "seal.json").exists()
