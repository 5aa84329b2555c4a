"""`parley chat` against a scripted worker."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest

from app.local.ports import free_port
from app.settings import Settings
from app.wire.control import Cancel
from tests.integration.commands.terminal import Terminal, ended, read_until
from tests.integration.scripted_worker import scripted_worker


@pytest.mark.parametrize("wire_format", ["json", "protobuf"])
async def test_prompt_is_sent_and_its_answer_printed(settings: Settings, terminal: Terminal, wire_format: str) -> None:
    terminal = terminal.having(wire_format=wire_format)
    async with scripted_worker(settings) as worker:
        named = ("--user", "änn", "--conversation", "c", "--max-tokens", "5", "--model", "m")
        chat = await terminal.run("chat", *named, "two words")
    assert (chat.code, chat.out) == (0, "two words \n")
    assert chat.err == "[a scripted worker answers]\n"
    (request,) = worker.requests
    assert (request.user_id, request.conversation_id, request.prompt) == ("änn", "c", "two words")
    assert (request.max_tokens, request.model) == (5, "m")


async def test_lines_of_the_input_are_asked_one_after_the_other(settings: Settings, terminal: Terminal) -> None:
    async with scripted_worker(settings):
        chat = await terminal.run("chat", "--user", "ann", typed="one\n\n  \ntwo three\n")
    assert (chat.code, chat.out) == (0, "one \ntwo three \n")


async def test_error_of_the_worker_is_one_line_and_exit_code_1(settings: Settings, terminal: Terminal) -> None:
    async with scripted_worker(settings):
        chat = await terminal.run("chat", "--user", "ann", "some fail")
    assert (chat.code, chat.out) == (1, "some \n")
    assert chat.err.splitlines()[1:] == ["Error: the script fails here (engine_error)"]


async def test_text_cannot_steer_the_terminal(settings: Settings, terminal: Terminal) -> None:
    async with scripted_worker(settings):
        chat = await terminal.run("chat", "--user", "ann", "\x1b[2Jhello")
    assert chat.out == "�[2Jhello \n"


async def test_ctrl_c_cancels_the_answer_and_waits_for_its_end(settings: Settings, terminal: Terminal) -> None:
    async with scripted_worker(settings) as worker, terminal.start("chat", "--user", "ann", "say wait") as process:
        await read_until(process.stdout, "say ")
        process.send_signal(signal.SIGINT)
        chat = await ended(process)
    assert chat.code == 0
    assert chat.err.splitlines()[-1] == "[cancelled]"
    assert worker.controls == [Cancel(request_id=worker.requests[0].request_id, user_id="ann")]


async def test_second_ctrl_c_leaves_without_the_end(settings: Settings, terminal: Terminal) -> None:
    async with scripted_worker(settings), terminal.start("chat", "--user", "ann", "say hang") as process:
        await read_until(process.stdout, "say ")
        process.send_signal(signal.SIGINT)
        await read_until(process.stderr, "press Ctrl-C again to exit at once")
        process.send_signal(signal.SIGINT)
        chat = await ended(process)
    assert chat.code == 0
    assert "interrupted before the end of the answer" in chat.err


async def test_sigterm_ends_it_cleanly(settings: Settings, terminal: Terminal) -> None:
    async with scripted_worker(settings), terminal.start("chat", "--user", "ann", "say wait") as process:
        await read_until(process.stdout, "say ")
        process.terminate()
        chat = await ended(process)
    assert (chat.code, chat.out, chat.err) == (0, "", "[a scripted worker answers]\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--user", "", "p"], "--user must have 1-128 characters"),
        (["--user", "ann", "--conversation", "c" * 257, "p"], "--conversation must have at most 256 characters"),
        (["--user", "ann", ""], "PROMPT is empty"),
    ],
)
async def test_wrong_use_is_one_line_and_exit_code_2(terminal: Terminal, arguments: list[str], message: str) -> None:
    chat = await terminal.run("chat", *arguments)
    assert (chat.code, chat.err) == (2, f"Error: {message}\n")


async def test_broker_that_is_away_is_one_line_and_exit_code_1(terminal: Terminal) -> None:
    port = free_port()
    for command in (["chat", "--user", "ann", "p"], ["tail", "tokens"], ["send", "-"]):
        tried = await terminal.having(broker=f"kafka://127.0.0.1:{port}").run(*command)
        assert tried.code == 1
        assert tried.err == (
            f"Error: no Kafka answers at 127.0.0.1:{port}: start one with `parley local up`, or set PARLEY_BROKER\n"
        )


async def test_events_are_printed_as_json_on_request(settings: Settings, terminal: Terminal) -> None:
    async with scripted_worker(settings):
        chat = await terminal.run("chat", "--user", "ann", "--json", "two words")
    events = [json.loads(line) for line in chat.out.splitlines()]
    assert (chat.code, chat.err) == (0, "")
    assert [event["type"] for event in events] == ["notice", "token", "token", "done"]
    assert [event.get("text") for event in events[1:3]] == ["two ", "words "]


@pytest.mark.parametrize(
    "arguments", [["chat", "-u", "n", "\udcff"], ["chat", "-u", "\udcff", "hi"], ["search", "-u", "n", "a\udcff"]]
)
async def test_an_argument_that_is_not_utf8_is_one_line(terminal: Terminal, arguments: list[str]) -> None:
    wrong = await terminal.run(*arguments)
    assert (wrong.code, wrong.out, wrong.err) == (2, "", "Error: an argument is not UTF-8\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chat"], "Missing option '-u' / '--user'. (see `parley chat --help`)"),
        (["chant"], "No such command 'chant'. Did you mean chat? (see `parley --help`)"),
        (["--loud", "chat"], "No such option: --loud (see `parley --help`)"),
        (["topics", "create", "--loud"], "No such option: --loud (see `parley topics create --help`)"),
    ],
)
async def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    terminal: Terminal, arguments: list[str], message: str
) -> None:
    wrong = await terminal.run(*arguments)
    assert (wrong.code, wrong.out, wrong.err) == (2, "", f"Error: {message}\n")


async def test_sigterm_while_a_command_is_imported_ends_it_cleanly(settings: Settings, terminal: Terminal) -> None:
    """A module that the command needs is made to wait, and the signal comes there."""
    slow = terminal.folder / "aiokafka.py"
    slow.write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    terminal = replace(terminal, path=str(terminal.folder))
    async with terminal.start("chat", "--user", "ann", "p") as process:
        await read_until(process.stdout, "importing")
        process.terminate()
        ended_so = await ended(process)
    assert (ended_so.code, ended_so.err) == (0, "")
