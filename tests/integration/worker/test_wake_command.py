"""`parley waits wake`: what sleeps ends or goes on, each kind of wait in its way."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.commands.waits import WOKEN_BY_HAND, asleep
from app.wire.codec import decode
from app.wire.waits import WaitRecord
from models.interface.generation import FinishReason
from tests.environment import environment_of
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker
from tests.integration.worker.test_approvals import POLICY
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of, expected
from tests.integration.worker.test_waits import until_it_is

PARLEY = str(Path(sys.executable).with_name("parley"))


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(f"{POLICY}".replace("[waits]", "[waits]\npark_after_s = 0.2"))
    return start_worker(policy=policy, partitions=1)


async def parley(worker: WorkerProcess, *arguments: str) -> tuple[int | None, str, str]:
    """The exit code of the command and what it has written."""
    process = await asyncio.create_subprocess_exec(
        PARLEY, *arguments, env=environment_of(worker.settings), cwd=worker.log.parent, stdout=PIPE, stderr=PIPE
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def figures_of(worker: WorkerProcess) -> dict[str, dict[str, float]]:
    """What the worker has counted of waits, by its one label."""
    async with httpx.AsyncClient(timeout=60) as http:
        reported = (await http.get(f"http://127.0.0.1:{worker.web_port}/metrics")).text
    families = {family.name: family.samples for family in text_string_to_metric_families(reported)}
    assert {"parley:asleep", "parley:asleep_bytes", "parley:asleep_used_ratio"} <= families.keys()
    return {
        name: {next(iter(one.labels.values())): one.value for one in families[f"parley:{name}"] if "_total" in one.name}
        for name in ("slept", "woken", "approvals")
    }


async def test_each_kind_of_wait_ends_and_none_sleeps(worker: WorkerProcess) -> None:
    later = int(time.time() * 1000) + 86_400_000
    kinds: dict[str, dict[str, Any]] = {"approval": KAFKA, "tool": KAFKA, "timer": {"not_before": later}}
    async with Client(worker.settings) as client:
        users = {kind: client.user() for kind in kinds}
        ids = {kind: await client.ask(users[kind], "hello", max_tokens=1, **how) for kind, how in kinds.items()}
        for request_id in ids.values():
            await until_it_is(client, request_id, "asleep")
        (made,) = await asleep(worker.settings, users["tool"])
        decision = {"type": "decide", "decision": "approved", "by": "desk/ali", "wait_id": made.waits[0].wait_id}
        of = {"user_id": users["tool"], "request_id": ids["tool"]}
        await client.send("controls", {**decision, **of}, users["tool"])
        (call,) = await calls_of(client, users["tool"])
        async with asyncio.timeout(PATIENCE_S):
            while {one.waits[0].kind for one in await asleep(worker.settings)} != {*kinds}:
                await asyncio.sleep(0.1)

        assert (await parley(worker, "waits", "wake"))[:2] == (2, "")
        code, out, err = await parley(worker, "waits", "wake", "--all", "--as", "ops")
        assert (code, out) == (0, "3\n"), err

        answers = {kind: await client.answer(users[kind], ids[kind]) for kind in kinds}
        assert {kind: one.end and one.end.finish_reason for kind, one in answers.items()} == {
            "approval": FinishReason.LENGTH,
            "tool": FinishReason.LENGTH,
            "timer": FinishReason.CANCELLED,
        }
        results = {kind: (await client.turns_of(users[kind], 1))[0] for kind in ("approval", "tool")}
        assert {turn.answer for turn in results.values()} == {expected("hello", [], [1])[0]}
        for request_id in ids.values():
            await until_it_is(client, request_id, "ended")
        rejected = [json.loads(one.value or b"{}") for one in await client.records("controls")]
        assert {one.get("reason") for one in rejected if one.get("decision") == "rejected"} == {WOKEN_BY_HAND}
        assert [one.tool_call_id for one in await calls_of(client, users["tool"])] == [call.tool_call_id]
        states = [decode(WaitRecord, one.value) for one in await client.records("waits") if one.value]
        ended = {one.request_id: one.decided for one in states if one.state == "ended"}
        assert [(one.decision, one.by) for one in ended[ids["approval"]]] == [("rejected", "desk/ops")]
        assert (await parley(worker, "waits", "--count"))[:2] == (0, "0\n")
        assert await figures_of(worker) == {
            "slept": {"tool": 2.0, "timer": 1.0},
            "woken": {"tool": 2.0, "stopped": 1.0},
            "approvals": {"asked": 2.0, "approved": 1.0, "rejected": 1.0},
        }
