"""Calls that wait for an approval, on a real Kafka, decided by the commands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.commands.approvals import decided_by, waiting
from app.wire.control import Decide
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of, expected, result
from tests.integration.worker.test_waits import until_it_is

POLICY = '[waits]\n[tools.look_up]\napprove = { by = "desk", within_s = 600 }\n'


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY)
    return start_worker(policy=policy, partitions=1)


async def test_the_first_of_two_decisions_counts(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request_id = await client.ask(user, "hello", max_tokens=1, **KAFKA)
        await until_it_is(client, request_id, "asleep")
        ((record, wait),) = [one for one in await waiting(worker.settings) if one[0].user_id == user]
        assert (record.request_id, wait.kind, wait.name, wait.by) == (request_id, "approval", "look_up", "desk")
        of: dict[str, Any] = {"request_id": request_id, "user_id": user, "wait_id": wait.wait_id}
        worker.kill()
        restart = asyncio.create_task(asyncio.to_thread(worker.start))
        edited = Decide(**of, decision="edited", arguments='{"word": "other"}', by="desk/ali")
        first = asyncio.create_task(decided_by(worker.settings, edited, record.since))
        async with asyncio.timeout(PATIENCE_S):
            while not await client.records("controls"):
                await asyncio.sleep(0.05)
        await restart
        second = Decide(**of, decision="rejected", by="desk/eve")
        while (counted := await decided_by(worker.settings, second, record.since)) is None:
            pass  # the worker's start may outlast the command's patience
        assert (counted.decision, counted.by) == ("edited", "desk/ali")
        assert await first in {None, counted}
        assert await decided_by(worker.settings, second, record.since) == counted, "which was made before"
        (call,) = await calls_of(client, user)
        assert (call.tool_call_id, call.arguments) == (wait.wait_id, '{"word": "other"}')
        await result(client, call, "packed")
        answer = await client.answer(user, request_id)
        assert answer.text == expected("hello", ["packed"], [1])[0]
        await until_it_is(client, request_id, "ended")
        assert [one for one in await waiting(worker.settings) if one[0].user_id == user] == []
