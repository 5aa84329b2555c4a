"""A message while an answer runs or sleeps, on a real Kafka, whose owner is killed at that moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from models.interface.generation import FinishReason
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of
from tests.integration.worker.test_waits import until_it_is

TALKS: dict[str, Any] = {"max_tokens": 100_000}
CALLS: dict[str, Any] = {**KAFKA, "max_tokens": 2, "tool_timeout_ms": 20 * 86_400_000}


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text("[waits]\npark_after_s = 0.2\n")
    return start_worker(policy=policy, partitions=1)


@pytest.mark.parametrize("first", [TALKS, CALLS])
@pytest.mark.parametrize("word", ["interrupt", "rollback"])
async def test_a_message_ends_what_runs_or_sleeps_through_a_kill(
    worker: WorkerProcess, word: str, first: dict[str, Any]
) -> None:
    async with Client(worker.settings) as client:
        user, back = client.user(), word == "rollback"
        await client.asked(user, "before", max_tokens=1)
        earlier = await client.ask(user, "hello", **first)
        queued = await client.ask(user, "and?", **TALKS)
        if first is CALLS:
            await calls_of(client, user)
            await until_it_is(client, earlier, "asleep")
        else:
            await client.begun(user, earlier)
        later = await client.ask(user, "stop", max_tokens=2, while_busy=word)
        worker.kill()
        await asyncio.to_thread(worker.start)
        ends = [(await client.answer(user, one)).end for one in (earlier, queued, later)]
        assert [end and end.finish_reason for end in ends] == [
            FinishReason.CANCELLED,
            FinishReason.CANCELLED,
            FinishReason.LENGTH,
        ]
        turns = {turn.request_id: turn for turn in await client.turns_of(user, 4)}
        assert (turns[earlier].prompt, bool(turns[earlier].answer)) == (("", False) if back else ("hello", True))
        assert turns[earlier].usage.completion_tokens > 0
        if first is CALLS:
            await until_it_is(client, earlier, "ended")


async def test_a_busy_conversation_rejects(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        earlier = await client.ask(user, "hello", **TALKS)
        refused = await client.asked(user, "and?", max_tokens=2, while_busy="reject")
        assert refused.end is not None
        assert refused.end.error is not None
        assert refused.end.error.code == "conversation_busy"
        await client.cancel(user, earlier)
        await client.answer(user, earlier)
        answered = await client.asked(user, "and now?", max_tokens=2, while_busy="reject")
        assert answered.end is not None
        assert answered.end.finish_reason is FinishReason.LENGTH
