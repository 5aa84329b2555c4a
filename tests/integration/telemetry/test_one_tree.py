"""One tree of spans over an answer that asks an agent, or whose worker is killed as it writes or waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.commands.approvals import decided_by, waiting
from app.local.kafka import KafkaCluster
from app.settings import Settings
from app.wire.control import Decide
from tests.faults.worker_process import WorkerProcess
from tests.integration.telemetry.test_traces import Span, all_of, spans
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import module_settings
from tests.integration.worker.test_agents import asked_by
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of, result
from tests.integration.worker.test_waits import until_it_is

APPROVED = '[waits]\n[tools.look_up]\napprove = { by = "desk", within_s = 600 }\n'
ASKED = '[waits]\n[agents.helper]\nsystem = "Help."\n[tools.look_up]\nask = "helper"\n'
SECRET = "what-was-asked"


@pytest.fixture
def settings(request: pytest.FixtureRequest, kafka: KafkaCluster, tmp_path: Path) -> Settings:
    policy = tmp_path / "policy.toml"
    policy.write_text(request.param)
    rate = {"partitions": 1, "paced_tokens_per_s": 5.0}
    return module_settings(kafka, tmp_path, traces="console", traces_sample=1.0, policy=policy, **rate)


@pytest.fixture
def worker(settings: Settings, tmp_path: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess(settings, tmp_path / "worker.log", OTEL_BSP_SCHEDULE_DELAY="100") as process:
        process.wait_owning(settings.partitions)
        yield process


async def tree_of(trace: str, count: int, worker: WorkerProcess) -> dict[str, list[Span]]:
    """The spans of a trace by their names, once so many answers have ended. None hangs in the air, and none is told
    twice.
    """
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = all_of(trace, worker.log)
            ids = [span["context"]["span_id"] for span in found]
            orphans = [span["name"] for span in found if span["parent_id"] not in {None, *ids}]
            if sum(span["name"] == "commit" for span in found) >= count and not orphans:
                break
            await asyncio.sleep(0.5)
    assert len(ids) == len({*ids})
    assert len([span for span in found if span["parent_id"] is None]) == 1
    assert SECRET not in str(found)
    names: dict[str, list[Span]] = {}
    for span in found:
        names.setdefault(span["name"], []).append(span)
    return names


async def kill(worker: WorkerProcess, *names: str) -> None:
    """Once it has exported spans of these names: what it has not is lost with it. The next one writes quicker."""
    async with asyncio.timeout(PATIENCE_S):
        while not {*names} <= {span["name"] for span in spans(worker.log)}:
            await asyncio.sleep(0.1)
    worker.kill()
    worker.settings = worker.settings.model_copy(update={"paced_tokens_per_s": 1000.0})
    await asyncio.to_thread(worker.start)


async def trace_on(client: Client, topic: str, user: str) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for record in await client.records(topic):
                headers = dict(record.headers)
                if record.key == user.encode() and "traceparent" in headers:
                    return headers["traceparent"].decode().split("-")[1]
            await asyncio.sleep(0.05)


def id_of(span: Span) -> str:
    return str(span["context"]["span_id"])


@pytest.mark.parametrize("settings", [""], indirect=True)
async def test_a_successor_goes_on_in_the_tree_of_the_dead(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request_id = await client.ask(user, SECRET, max_tokens=1200)  # four minutes, unless the worker is killed
        trace = await trace_on(client, "tokens", user)
        await client.begun(user, request_id, 5)
        await kill(worker)
        assert (await client.answer(user, request_id)).end is not None
    names = await tree_of(trace, 1, worker)
    dead, successor = sorted(names["process requests"], key=lambda span: span["end_time"])
    assert dead["attributes"]["parley.taken_over"] is True
    assert [link["context"]["span_id"] for link in successor["links"]] == [id_of(dead)]
    (chat,) = (span for name, spans in names.items() if name.startswith("chat ") for span in spans)
    assert chat["parent_id"] == id_of(successor)
    assert chat["attributes"]["gen_ai.usage.output_tokens"] == 1200


@pytest.mark.parametrize("settings", [APPROVED], indirect=True)
async def test_an_approval_and_its_call_stand_under_their_answer(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request_id = await client.ask(user, SECRET, max_tokens=1, **KAFKA)
        await until_it_is(client, request_id, "asleep")
        await kill(worker, "process requests")
        ((record, wait),) = await waiting(worker.settings)
        names: dict[str, Any] = {"request_id": request_id, "user_id": user, "wait_id": wait.wait_id}
        decision = Decide(**names, decision="approved", by="desk/ali")
        while await decided_by(worker.settings, decision, record.since) is None:
            pass
        (call,) = await calls_of(client, user)
        (called,) = [one for one in await client.records("tool-calls") if one.key == user.encode()]
        _, trace, call_span, _ = dict(called.headers)["traceparent"].decode().split("-")
        await kill(worker, "approval look_up")
        await result(client, call, SECRET)
        await client.answer(user, request_id)
    names = await tree_of(trace, 1, worker)
    (answer,), (approval,), (tool,) = names["invoke_agent"], names["approval look_up"], names["execute_tool look_up"]
    assert id_of(tool) == f"0x{call_span}"
    assert {tool["parent_id"], approval["parent_id"]} == {id_of(answer)}
    assert approval["attributes"]["parley.approval.state"] == "approved"
    assert tool["attributes"]["gen_ai.tool.call.id"] == call.tool_call_id
    assert approval["end_time"] <= tool["end_time"]
    slept, woken = sorted(names["process requests"], key=lambda span: span["end_time"])
    assert [event["name"] for event in slept["events"]] == ["asleep"]
    assert [link["context"]["span_id"] for link in woken["links"]] == [id_of(slept)]


@pytest.mark.parametrize("settings", [ASKED], indirect=True)
async def test_an_agent_that_is_asked_stands_under_who_asks(worker: WorkerProcess) -> None:
    async with Client(worker.settings) as client:
        user = client.user()
        request_id = await client.ask(user, SECRET, max_tokens=2, **KAFKA)
        await client.answer(user, request_id)
        trace = await trace_on(client, "tokens", user)
        asked = await asked_by(client, request_id, 1)
    names = await tree_of(trace, 1 + len(asked), worker)
    (answer,), helpers = names["invoke_agent"], names["invoke_agent helper"]
    assert {helper["parent_id"] for helper in helpers} == {id_of(answer)}
    assert len(helpers) == len(asked)
    parts = {span["parent_id"] for span in names["process requests"]}
    assert parts == {id_of(answer), *(id_of(helper) for helper in helpers)}
