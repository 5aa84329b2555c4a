"""`parley export --requests MODEL | parley send - --at-once N`, beside a worker that repeats the prompt."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from app.delivery.commits.handover import Handover, encode_metadata
from app.settings import Settings
from app.wire.request import Priority
from tables.erasures import Scope
from tests.environment import environment_of
from tests.integration.commands.stored import turn, write
from tests.integration.commands.terminal import PARLEY, Ended, Terminal
from tests.integration.scripted_worker import scripted_worker
from tests.integration.waiting import until

NOW = time.time_ns() // 1_000_000
"""When the tests are collected, which may be half an hour before they run."""
HOUR_MS = 3_600_000


async def piped(terminal: Terminal, export: str, send: str) -> Ended:
    parley = shlex.join(PARLEY)
    root = str(Path(__file__).parents[3])
    process = await asyncio.create_subprocess_shell(
        f"{parley} export {export} | {parley} send - {send}",
        stdout=PIPE,
        stderr=PIPE,
        cwd=terminal.folder,
        env=environment_of(terminal.settings) | {"PYTHONPATH": root},
    )
    out, err = await asyncio.wait_for(process.communicate(), 180)
    return Ended(process.returncode, out.decode(), err.decode())


async def test_each_turn_is_asked_again_with_the_turns_before_it(settings: Settings, terminal: Terminal) -> None:
    await write(
        settings,
        turn("acme/ann", "1", "hello there", "Hi", NOW - 3, tenant="acme"),
        turn("acme/ann", "2", "one two", "Three", NOW - 2, tenant="acme"),
        turn("acme/ann", "3", "fail now", "No", NOW - 1, tenant="acme", conversation_id="other"),
        turn("bob", "1", "forget me", "Why", NOW - 1),
        erasing=(Scope("bob"),),
    )
    async with scripted_worker(settings) as worker:
        done = await piped(terminal, "--requests small", "--at-once 1")
    lines = {line["conversation_id"]: line for line in map(json.loads, done.out.splitlines())}
    assert lines.keys() == {"replay-1", "replay-2", "replay-3"}
    assert lines["replay-2"] == {
        "request_id": lines["replay-2"]["request_id"],
        "user_id": "acme/ann",
        "conversation_id": "replay-2",
        "answer": "one two ",
        "model_version": None,
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cached_tokens": 0},
        "error": None,
    }
    assert (lines["replay-3"]["answer"], lines["replay-3"]["error"]) == ("", "engine_error")
    assert done.code == 1
    assert "3 requests" in done.err.splitlines()
    assert done.err.splitlines()[-1] == "2 answered, 1 ended in engine_error"
    asked = next(request for request in worker.requests if request.question == "one two")
    assert [(one.role.value, one.content) for one in asked.messages or ()] == [
        ("user", "hello there"),
        ("assistant", "Hi"),
        ("user", "one two"),
    ]
    assert (asked.model, asked.tenant, asked.request_id) == ("small", "acme", lines["replay-2"]["request_id"])
    assert (asked.priority, asked.store, asked.cache, asked.recall) == (Priority.BATCH, False, False, 0)


async def test_turns_before_those_that_are_chosen_are_their_context(settings: Settings, terminal: Terminal) -> None:
    await write(
        settings,
        turn("ann", "1", "hello there", "Hi", NOW - 4 * HOUR_MS),
        turn("ann", "2", "one two", "Three", NOW, model_version="old@7"),
        turn("bob", "1", "two three", "Four", NOW - 4 * HOUR_MS),
        turn("eve", "1", "four five", "Six", NOW, model_version="old@7"),
    )
    (terminal.folder / "users").write_text("ann\n")
    for only in (("--since", "2h"), ("--model", "old")):
        done = await terminal.run("export", "--requests", "small", *only, "--users", "users")
        assert (done.code, done.err) == (0, "1 requests\n")
        messages = json.loads(done.out)["messages"]
        assert [one["content"] for one in messages] == ["hello there", "Hi", "one two"]


async def test_the_next_request_waits_until_there_is_room(settings: Settings, terminal: Terminal) -> None:
    await write(settings, *(turn("ann", str(number), "pause here", "1", NOW - 9 + number) for number in range(2)))
    async with scripted_worker(settings) as worker:
        running = asyncio.create_task(piped(terminal, "--requests small", "--at-once 1"))
        await until(lambda: bool(worker.requests))
        await asyncio.sleep(0.5)
        assert len(worker.requests) == 1
        worker.goes_on.set()
        done = await running
    assert (done.code, done.err.splitlines()[-1], len(worker.requests)) == (0, "2 answered", 2)


async def test_no_turns_are_no_failure(terminal: Terminal) -> None:
    done = await terminal.run("export", "--requests", "small", "--tenant", "acme")
    assert (done.code, done.out, done.err) == (0, "", "no such turns\n")


async def test_controls_have_no_answers(terminal: Terminal) -> None:
    done = await terminal.run("send", "-", "--topic", "controls", "--at-once", "1")
    assert (done.code, done.err) == (2, "Error: --at-once is for requests: controls have no answers\n")


async def test_a_model_that_no_worker_serves_is_refused(settings: Settings, terminal: Terminal) -> None:
    await write(settings, turn("ann", "1", "hello there", "Hi", NOW - 1))
    await _state(settings, "demo", "small")
    for unknown in ("nope", "smal", "Small"):
        done = await terminal.run("export", "--requests", unknown)
        why = f"no worker serves a model {unknown!r}; there are demo, small"
        assert (done.code, done.out, done.err) == (2, "", f"Error: {why}\n")
    for known in ("small", "default", "auto", "small@0a1b"):
        done = await terminal.run("export", "--requests", known)
        assert (done.code, json.loads(done.out)["model"]) == (0, known)


async def _state(settings: Settings, *models: str) -> None:
    """What an owner commits."""
    owned = TopicPartition(settings.topic("requests"), 0)
    committing = AIOKafkaConsumer(**settings.cluster.options(), group_id=settings.group, enable_auto_commit=False)
    committing.assign([owned])
    await committing.start()
    await committing.commit({owned: OffsetAndMetadata(0, encode_metadata(Handover(0, models=models)))})
    await committing.stop()


@pytest.mark.parametrize("command", [["export"], ["search", "--user", "ann", "parcel"]])
async def test_a_period_without_any_time_is_wrong_use(terminal: Terminal, command: list[str]) -> None:
    done = await terminal.run(*command, "--since", "1h", "--until", "2h")
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("--until must be later than --since: no time lies between them\n")
