"""An answer that sleeps, on a real Kafka and a real RocksDB."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.commands.waits import asleep
from app.wire.codec import decode
from app.wire.waits import WaitRecord
from models.interface.generation import FinishReason
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of, expected, result

DAYS: dict[str, Any] = {**KAFKA, "tool_timeout_ms": 20 * 86_400_000}


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text("[waits]\npark_after_s = 0.2\n")
    return start_worker(policy=policy, partitions=1)


async def state_of(client: Client, request_id: str) -> list[str]:
    """The states of an answer on `waits`, in their order; the key of a tombstone has none."""
    records = [one for one in await client.records("waits") if request_id in json.loads(one.key or b"[]")]
    return ["" if one.value is None else decode(WaitRecord, one.value).state for one in records]


async def until_it_is(client: Client, request_id: str, state: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (await state_of(client, request_id))[-1:] != [state]:
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("keeps_data", [True, False])
async def test_an_answer_sleeps_through_a_kill(worker: WorkerProcess, *, keeps_data: bool) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request_id = await client.ask(user, "hello", max_tokens=2, **DAYS)
        (call,) = await calls_of(client, user)
        await until_it_is(client, request_id, "asleep")
        meanwhile = await client.asked(user, "meanwhile", max_tokens=1)
        assert meanwhile.end is not None
        worker.kill()
        if not keeps_data:
            await asyncio.to_thread(shutil.rmtree, Path(worker.settings.data_dir) / "tables")
        await asyncio.to_thread(worker.start)
        await result(client, call, "packed")
        _, second = await calls_of(client, user, 2)
        await result(client, second, "sent")
        answer = await client.answer(user, request_id)
        assert answer.text == expected("hello", ["packed", "sent"], [1, 1])[0]
        await until_it_is(client, request_id, "ended")
        turns = await client.turns_of(user, 2)
        assert [turn.prompt for turn in turns] == ["meanwhile", "hello"]
        later = await client.asked(user, "and now?", max_tokens=1)
        assert later.end is not None
        assert later.end.finish_reason is FinishReason.LENGTH


async def test_a_cancel_ends_an_answer_that_sleeps(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request_id = await client.ask(user, "hello", max_tokens=2, **DAYS)
        await until_it_is(client, request_id, "asleep")
        (state,) = await asleep(worker.settings, user)
        assert (state.request_id, [wait.name for wait in state.waits]) == (request_id, ["look_up"])
        await client.cancel(user, request_id)
        answer = await client.answer(user, request_id)
        assert answer.end is not None
        assert answer.end.finish_reason is FinishReason.CANCELLED
        assert answer.text
        await until_it_is(client, request_id, "ended")
        assert await asleep(worker.settings, user) == []


async def test_a_request_for_later_sleeps_through_a_kill(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user, states = client.user(), list[str]()
        for later_s in (4, 20, 100):  # the next one, if a busy machine has read the request too late
            not_before = int((time.time() + later_s) * 1000)
            request_id = await client.ask(user, "remind me", max_tokens=2, not_before=not_before)
            answering = asyncio.ensure_future(client.answer(user, request_id))
            while not states and not answering.done():
                states = await state_of(client, request_id)
            if states:
                break
        worker.kill()
        await asyncio.to_thread(worker.start)
        answer = await answering
        assert answer.end is not None
        assert answer.end.finish_reason is FinishReason.LENGTH
        assert (answer.segments[0].timestamp or 0) >= not_before
        await until_it_is(client, request_id, "ended")


async def test_a_sampled_answer_has_the_words_of_one_that_has_not_slept(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    """By the demo model; the one that sleeps loses its worker and its data meanwhile."""
    policy, said = tmp_path / "policy.toml", []
    policy.write_text("[waits]\npark_after_s = 0.2\n")
    parameters = {"type": "object", "properties": {"order_number": {"type": "string"}}, "required": ["order_number"]}
    tools = [{"type": "function", "function": {"name": "order_status", "parameters": parameters}}]
    asks = {**DAYS, "tools": tools, "tool_choice": "required", "temperature": 1.1, "seed": 7, "max_tokens": 80}
    for sleeps in (True, False):
        own: dict[str, Any] = {"engine": "torch", "threads": 1, "partitions": 1, "policy": policy if sleeps else None}
        worker = await asyncio.to_thread(partial(start_worker, **own))
        async with Client(worker.settings) as client:
            user, fields = client.user(), asks if sleeps else {**asks, "tool_timeout_ms": 600_000}
            request_id = await client.ask(user, "Where is my order 48213?", **fields)
            (call,) = await calls_of(client, user)
            if sleeps:
                await until_it_is(client, request_id, "asleep")
                worker.kill()
                await asyncio.to_thread(shutil.rmtree, Path(worker.settings.data_dir) / "tables")
                await asyncio.to_thread(worker.start)
            await result(client, call, '{"status": "packed", "arrives": "on Tuesday"}')
            answer = await client.answer(user, request_id)
            said.append((call.name, call.arguments, answer.tokens, answer.text))
        worker.kill()
    assert said[0] == said[1]
    assert len(said[0][2]) > 10
