"""An answer that asks an agent, on a real Kafka and a real RocksDB, whose worker is killed each time that it asks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from app.features.agents.asking import ASKED_BY
from models.interface.generation import FinishReason
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_tools_over_kafka import KAFKA, expected
from tests.integration.worker.test_waits import state_of, until_it_is

POLICY = """
[waits]
[agents.helper]
system = "Help."
[tools.look_up]
ask = "helper"
"""


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY)
    return start_worker(policy=policy, partitions=1)


async def asked_by(client: Client, request_id: str, count: int) -> list[dict[str, Any]]:
    """The requests of agents that this one has asked, once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            records = [(dict(one.headers), one.value) for one in await client.records("requests")]
            mine = [value for headers, value in records if headers.get(ASKED_BY) == f"1/{request_id}".encode()]
            if len(mine) >= count:
                return [json.loads(value or b"") for value in mine]
            await asyncio.sleep(0.05)


async def test_an_agent_answers_through_kills(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request_id = await client.ask(user, "hello", max_tokens=6, **KAFKA)
        for count in (1, 2, 3):
            *_, asked = await asked_by(client, request_id, count)
            assert (asked["agent"], asked["user_id"], asked["store"]) == ("helper", user, False)
            while count == 1 and "asleep" not in await state_of(client, request_id):
                await asyncio.sleep(0.05)
            worker.kill()
            await asyncio.to_thread(worker.start)
        answer = await client.answer(user, request_id)
        agents = await asked_by(client, request_id, 3)
        assert len(agents) == 3
        texts = [(await client.answer(user, one["request_id"])).text for one in agents]
        assert answer.text == expected("hello", texts, [3, 2, 1])[0]
        await until_it_is(client, request_id, "ended")
        # An agent may answer before its requester sleeps.
        assert 1 <= (await state_of(client, request_id)).count("asleep") <= 3
        later = await client.asked(user, "and now?", max_tokens=1)
        assert later.end is not None
        assert later.end.finish_reason is FinishReason.LENGTH


async def test_a_request_has_what_its_agent_brings(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        first = await client.asked(user, "hello", max_tokens=2, agent="helper")
        again = await client.asked(user, "hello", max_tokens=2, conversation_id="other", agent="helper")
        plain = await client.asked(user, "hello", max_tokens=2, conversation_id="third")
        assert first.text == again.text
        assert first.text != plain.text
        unknown = await client.asked(user, "hello", agent="nobody")
        assert unknown.end is not None
        assert unknown.end.error is not None
        assert unknown.end.error.message == "agent: there is no 'nobody'; there are: helper"
