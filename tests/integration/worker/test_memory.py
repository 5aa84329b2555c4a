"""What conversations remember, for how long, and through which accidents."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from models.served.paced import BytePrompts
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

TTL_S = 12.0
"""A sweep spares what has expired for less than ten seconds: a test may be late for so long."""


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker) -> WorkerProcess:
    return start_worker(conversation_ttl_s=TTL_S, sweep_interval_s=1.0)


def alone(prompt: str) -> int:
    """Tokens of the prompt without any history."""
    return len(BytePrompts().build("", (), prompt).ids)


async def prompt_tokens(client: Client, user: str, prompt: str, timestamp_ms: int | None = None) -> int:
    answer = await client.asked(user, prompt, max_tokens=2, timestamp_ms=timestamp_ms)
    assert answer.end is not None
    assert answer.end.usage is not None
    return answer.end.usage.prompt_tokens


def restart(worker: WorkerProcess, *, kill: bool) -> None:
    size = worker.log.stat().st_size
    if kill:
        worker.kill()
    else:
        assert worker.stop() == 0
    worker.start()
    worker.wait_owning(worker.settings.partitions, size)


async def test_a_conversation_is_remembered_within_its_ttl_and_forgotten_after_it(client: Client) -> None:
    user = client.user()
    await client.asked(user, "one", max_tokens=2)
    (turn,) = await client.turns_of(user, 1)
    assert await prompt_tokens(client, user, "two", turn.created_at + 2000) > alone("two")
    await asyncio.sleep(TTL_S + 1.0)
    assert await prompt_tokens(client, user, "three") == alone("three")


async def test_an_expired_conversation_gets_a_tombstone_in_the_changelog(client: Client) -> None:
    user = client.user()
    await client.asked(user, "one", max_tokens=2)
    topic = f"{client.settings.app_id}-conversations-changelog"
    async with asyncio.timeout(120):
        while True:
            rows = [record for record in await client.records(topic) if user in record.key.decode()]
            if rows and rows[-1].value is None:
                break
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("accident", ["restart", "kill", "wiped"])
async def test_memory_and_forgetting_survive_a_restart_and_a_restore(
    client: Client, worker: WorkerProcess, accident: str
) -> None:
    old, new = client.user(), client.user()
    await client.asked(new, "hello", max_tokens=2)
    await client.asked(old, "long ago", max_tokens=2)
    (turn,) = await client.turns_of(old, 1)
    if accident == "wiped":
        worker.kill()
        shutil.rmtree(worker.settings.data_dir)
    # The TTL is shorter than a restart may take: the clock of a request is its record's timestamp.
    within = await client.ask(old, "and now", max_tokens=2, timestamp_ms=turn.created_at + 1000)
    await asyncio.to_thread(restart, worker, kill=accident != "restart")
    answer = await client.answer(old, within)
    assert answer.end is not None
    assert answer.end.usage is not None
    assert answer.end.usage.prompt_tokens > alone("and now")
    await asyncio.sleep(TTL_S + 1)
    assert await prompt_tokens(client, old, "who am I") == alone("who am I")
