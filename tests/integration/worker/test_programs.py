"""Programs of agents on a real Kafka: answers go on behind kills of the program, of its worker, and of both.

`KILLS=50` kills so often; the module's test alone has a few.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.reader import Answer
from app.wire.dead_letters import cause_from
from models.interface.generation import FinishReason
from tests.faults.programs_verdict import ProgramTopics, wrong_programs
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import PATIENCE_S, Client
from tests.integration.worker.conftest import StartWorker

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("program_of_steps.py")
EXAMPLES = ROOT / "deploy" / "examples"
KILLS = int(os.environ.get("KILLS", "6"))
POLICY = """
[waits]
park_after_s = 0.5
[agents.helper]
[agents.desk]
program = true
within_s = 600
[agents.parrot]
program = true
[agents.refunds]
program = true
"""


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY)
    return start_worker(policy=policy, partitions=2, paced_tokens_per_s=20.0)


class Program:
    """A process of its own."""

    def __init__(self, file: Path, worker: WorkerProcess, log: Path) -> None:
        self._file, self.log = file, log
        broker = worker.settings.broker.removeprefix("kafka://")
        self._environment = os.environ | {"BROKER": broker, "PREFIX": worker.settings.topic_prefix}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, self._file], stdout=log, stderr=log, env=self._environment
            )

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def running(file: Path, worker: WorkerProcess, log: Path) -> Iterator[Program]:
    program = Program(file, worker, log)
    program.start()
    try:
        yield program
    finally:
        program.kill()


async def _killed(worker: WorkerProcess, program: Program, kills: int) -> None:
    """Kill each of the two, or both, after times by chance; each comes back soon."""
    chance = random.Random(kills)
    for number in range(kills):
        await asyncio.sleep(0.3 + 2.0 * chance.random())
        if number % 3 != 0:
            program.kill()
        if number % 3 != 1:
            worker.kill()
            await asyncio.sleep(chance.choice((0.0, 0.5)))
            await asyncio.to_thread(worker.start)
        if number % 3 != 0:
            program.start()
        if number % 3 != 1:
            await asyncio.to_thread(worker.wait_joined)


async def _asked_until(client: Client, over: asyncio.Event) -> list[tuple[str, str]]:
    """Requests of several users, so that some answer is under way at each moment."""
    asked: list[tuple[str, str]] = []
    users = [client.user() for _ in range(4)]
    while not over.is_set():
        user = users[len(asked) % len(users)]
        request_id = await client.ask(user, "hello", agent="desk", conversation_id=f"c{len(asked)}", max_tokens=12)
        asked.append((user, request_id))
        await asyncio.sleep(1.0)
    return asked


async def test_each_step_counts_once_through_kills(worker: WorkerProcess, tmp_path: Path) -> None:
    async with Client(worker.settings) as client:
        with running(PROGRAM, worker, tmp_path / "program.log") as program:
            first = await client.asked(client.user(), "hello", agent="desk", max_tokens=12)
            over = asyncio.Event()
            asking = asyncio.create_task(_asked_until(client, over))
            await _killed(worker, program, KILLS)
            over.set()
            asked = await asking
            answers = {key: await client.answer(*key, patience_s=2 * PATIENCE_S) for key in asked}
        ran = re.findall(r"^ran (\S+)$", (tmp_path / "program.log").read_text(), re.MULTILINE)
        assert {f"{user}/{request_id}/2" for user, request_id in asked} <= set(ran)
        assert _said(first)[-5:] == "Done."
        assert {_said(one) for one in answers.values()} == {_said(first)}
        requests = {key: {"max_tokens": 12} for key in asked}
        topics = ProgramTopics(await client.records("tool-calls"), await client.records("tool-results"))
        assert wrong_programs(requests, answers, topics) == []
        assert {len(topics.asked[key]) for key in asked} == {8}
        assert await client.records("dead-letters") == []
        counts = Counter(user for user, _ in asked)
        turns = [one for user, count in counts.items() for one in await client.turns_of(user, 2 * count)]
        own = Counter(
            key for one in turns if (key := (one.user_id, one.request_id)) in asked
        )  # not those of the helper
        assert own == Counter(asked)
        print(f"{KILLS} kills, {len(asked)} answers, {sum(map(len, topics.asked.values()))} steps, {len(ran)} runs")


def _said(answer: Answer) -> str:
    assert answer.end is not None
    assert answer.end.finish_reason is FinishReason.STOP
    return answer.text


async def test_a_program_in_any_language(worker: WorkerProcess, tmp_path: Path) -> None:
    async with Client(worker.settings) as client:
        with running(EXAMPLES / "any_language.py", worker, tmp_path / "log"):
            answer = await client.asked(client.user(), "hello", agent="parrot")
    said = _said(answer).split("\n\n")
    assert (said[0], said[1].count(" w"), said[2]) == ("You said: hello", 5, "That had 5 words.")


async def test_the_refund_desk_as_a_program(worker: WorkerProcess, tmp_path: Path) -> None:
    async with Client(worker.settings) as client:
        with running(EXAMPLES / "refund_agent.py", worker, tmp_path / "log"):
            small = await client.asked(client.user(), "Refund order 17", agent="refunds")
            assert _said(small).startswith("I look at order 17, a lamp.")
            assert _said(small).endswith("40 are on their way to you.")
            user = client.user()
            request_id = await client.ask(user, "Refund order 48213", agent="refunds")
            wait = await _approval(client, request_id)
            decision = {"decision": "edited", "arguments": json.dumps({"order": "48213", "amount": 450})}
            of = {"type": "decide", "user_id": user, "request_id": request_id, "wait_id": wait["wait_id"]}
            await client.send("controls", {**of, **decision, "by": "desk/ali"}, user)
            assert _said(await client.answer(user, request_id)).endswith("450 are on their way to you.")
            unknown = await client.asked(client.user(), "Refund it", agent="refunds")
            assert _said(unknown).endswith("I need the number of your order.")
        assert (tmp_path / "log").read_text().splitlines()[1] == f"pays 48213 450 {user}/{request_id}/4"


async def _approval(client: Client, request_id: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            for record in await client.records("waits"):
                state = json.loads(record.value or b"{}")
                for wait in state.get("waits", ()):
                    if state["request_id"] == request_id and wait["kind"] == "approval":
                        return dict(wait)
            await asyncio.sleep(0.1)


async def test_a_program_that_has_changed_ends_the_answer(worker: WorkerProcess, tmp_path: Path) -> None:
    async with Client(worker.settings) as client:
        sleeps = tmp_path / "sleeps.py"
        sleeps.write_text(PROGRAM.read_text().replace("sleep(0.3)", "sleep(600)"))
        with running(sleeps, worker, tmp_path / "log") as program:
            user = client.user()
            request_id = await client.ask(user, "hello", agent="desk", max_tokens=12)
            await client.begun(user, request_id, 12)
            program.kill()
        other = tmp_path / "other.py"
        other.write_text(PROGRAM.read_text().replace("You ask", "You wonder"))
        with running(other, worker, tmp_path / "log"):
            answer = await client.answer(user, request_id)
        assert answer.end is not None
        assert answer.end.finish_reason is FinishReason.PARTIAL
        async with asyncio.timeout(PATIENCE_S):  # the finish comes a moment after the end
            while not (letters := await client.records("dead-letters")):
                await asyncio.sleep(0.1)
        (letter,) = [cause_from(one.headers) for one in letters]
        assert letter is not None
        assert "step 1, say, has another text now: the program has changed" in letter.message
