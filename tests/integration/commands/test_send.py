"""`parley send`: good lines are sent, bad ones are reported."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import time
from pathlib import Path

import pytest

from app.settings import Settings
from app.wire.control import Cancel, Erase
from app.wire.request import Request
from tests.integration.commands.terminal import Terminal, ended
from tests.integration.scripted_worker import ScriptedWorker, scripted_worker
from tests.integration.waiting import until


async def received(worker: ScriptedWorker, count: int) -> list[Request]:
    await worker_has(worker, count)
    return sorted(worker.requests, key=lambda request: request.prompt or "")


async def worker_has(worker: ScriptedWorker, count: int) -> None:
    await until(lambda: len(worker.requests) + len(worker.controls) >= count)


@pytest.mark.parametrize("wire_format", ["json", "protobuf"])
async def test_lines_arrive_under_their_users_key(
    settings: Settings, terminal: Terminal, tmp_path: Path, wire_format: str
) -> None:
    terminal = terminal.having(wire_format=wire_format)
    lines = [{"user_id": f"user {n % 7}", "prompt": f"{n:04}", "seed": n} for n in range(2000)]
    file = tmp_path / "requests.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    async with scripted_worker(settings) as worker:
        sent = await terminal.run("send", str(file))
        assert (sent.code, sent.err) == (0, f"sent 2000 to {settings.topic('requests')!r}\n")
        requests = await received(worker, 2000)
    assert [(r.user_id, r.prompt, r.seed) for r in requests] == [(x["user_id"], x["prompt"], x["seed"]) for x in lines]
    made = [json.loads(line) for line in sent.out.splitlines()]
    assert made == [{"line": n, "request_id": one.request_id} for n, one in enumerate(requests, 1)]
    assert len({one["request_id"] for one in made}) == 2000


async def test_line_that_breaks_the_contract_is_told_and_the_others_go_on(
    settings: Settings, terminal: Terminal
) -> None:
    lines = [
        '{"request_id":"r-1","user_id":"ann","prompt":"1"}',
        "",
        "not json",
        '{"user_id":"ann"}',
        '{"prompt":"p"}',
        '{"user_id":"ann","prompt":"p","temperature":3}',
        '{"user_id":"ann","prompt":"' + "p" * (settings.max_prompt_bytes + 1) + '"}',
        "[" * 10_000,
        '{"request_id":"r-2","user_id":"ann","prompt":"2"}',
    ]
    async with scripted_worker(settings) as worker:
        sent = await terminal.run("send", "-", typed="\n".join(lines))
        assert [request.request_id for request in await received(worker, 2)] == ["r-1", "r-2"]
    assert sent.code == 1
    reported = sent.err.splitlines()
    assert [line.split(" was not sent: ")[0] for line in reported[:-1]] == [f"line {n}" for n in (3, 4, 5, 6, 7, 8)]
    assert "temperature: must be at most 2" in reported[3]
    assert reported[-1] == f"sent 2 to {settings.topic('requests')!r}, 6 not"


async def test_a_misspelt_field_is_told_and_of_a_control_refused(settings: Settings, terminal: Terminal) -> None:
    request = '{"request_id":"r-1","user_id":"ann","prompt":"1","max_toks":3}'
    erasure = '{"type":"erase","user_id":"ann","converstion_id":"c"}'
    async with scripted_worker(settings) as worker:
        sent = await terminal.run("send", "-", typed=request)
        assert [one.request_id for one in await received(worker, 1)] == ["r-1"]
        refused = await terminal.run("send", "-", "--topic", "controls", typed=erasure)
    assert (sent.code, refused.code) == (0, 1)
    assert sent.err.startswith(
        "line 1: max_toks (did you mean max_tokens?): no field of a request, so it has no effect\n"
    )
    why = "converstion_id (did you mean conversation_id?): no field of this record"
    assert refused.err.startswith(f"line 1 was not sent: {why}\n")


async def test_controls_are_sent_too(settings: Settings, terminal: Terminal) -> None:
    lines = ['{"type":"cancel","request_id":"r","user_id":"ann"}', '{"type":"erase","user_id":"bob"}', '{"type":"?"}']
    async with scripted_worker(settings) as worker:
        sent = await terminal.run("send", "-", "--topic", "controls", typed="\n".join(lines))
        await worker_has(worker, 2)
    assert sent.code == 1
    assert Cancel(request_id="r", user_id="ann") in worker.controls
    assert Erase(user_id="bob") in worker.controls


async def test_file_that_is_not_there_is_wrong_use(terminal: Terminal) -> None:
    assert (await terminal.run("send", "nowhere.jsonl")).code == 2


async def test_ctrl_c_says_how_many_were_sent(settings: Settings, terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    os.mkfifo(file)

    def write() -> None:
        """A file without an end."""
        with contextlib.suppress(BrokenPipeError), file.open("w") as lines:
            for number in itertools.count():
                print(f'{{"request_id": "r{number}", "user_id": "nina", "prompt": "wait"}}', file=lines, flush=True)
                time.sleep(0.001)

    async with scripted_worker(settings) as worker, terminal.start("send", str(file)) as process:
        writing = asyncio.create_task(asyncio.to_thread(write))
        await until(lambda: bool(worker.requests))
        process.terminate()
        done = await ended(process)
        await writing
    stopped = re.fullmatch(r"stopped at line (\d+): sent (\d+) to '.*requests'\n", done.err)
    assert stopped is not None, done.err
    assert done.code == 1
    assert 0 < int(stopped[2]) <= int(stopped[1])
