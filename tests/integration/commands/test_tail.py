"""`parley tail`: one line of JSON a record."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from app.commands.tail import TOPICS
from app.kafka.clients import producer
from app.settings import Settings
from app.wire.codec import encode
from app.wire.dead_letters import Cause, dead_letter_headers
from app.wire.ids import partition_for
from app.wire.request import Request
from tests.integration.commands.terminal import Terminal, ended, read_until
from tests.integration.scripted_worker import scripted_worker

PAST = ("--from-beginning", "--no-follow")


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


async def tokens_of_two_users(settings: Settings) -> None:
    async with scripted_worker(settings) as worker:
        for user in ("ann", "eve"):
            request = Request(request_id=f"of-{user}", user_id=user, prompt="hello you")
            await worker.answer(request, partition_for(user, settings.partitions))


@pytest.mark.parametrize("wire_format", ["json", "protobuf"])
async def test_records_of_the_past_are_printed_up_to_the_end(
    settings: Settings, terminal: Terminal, wire_format: str
) -> None:
    await tokens_of_two_users(settings.model_copy(update={"wire_format": wire_format}))
    tail = await terminal.run("tail", "tokens", *PAST)
    assert (tail.code, tail.err) == (0, "")
    of_ann = [line for line in lines(tail.out) if line["key"] == "ann"]
    assert [line["value"]["type"] for line in of_ann] == ["notice", "token", "token", "done"]
    assert [line["value"].get("text") for line in of_ann] == [None, "hello ", "you ", None]
    assert {line["partition"] for line in of_ann} == {partition_for("ann", settings.partitions)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--user", "ann"), {"ann"}),
        (("--request", "of-eve"), {"eve"}),
        (("--user", "ann", "--request", "of-eve"), set()),
        (("-n", "1"), None),
    ],
)
async def test_records_can_be_chosen(
    settings: Settings, terminal: Terminal, options: tuple[str, ...], expected: set[str] | None
) -> None:
    await tokens_of_two_users(settings)
    tail = await terminal.run("tail", "tokens", *PAST, *options)
    if expected is None:
        assert len(lines(tail.out)) == 1
    else:
        assert {line["key"] for line in lines(tail.out)} == expected


async def test_empty_topic_has_no_lines_and_a_partition_that_is_not_there_is_wrong_use(terminal: Terminal) -> None:
    empty = await terminal.run("tail", "turns", *PAST, "--partition", "3")
    assert (empty.code, empty.out) == (0, "")
    wrong = await terminal.run("tail", "turns", *PAST, "--partition", "4")
    assert (wrong.code, wrong.err) == (2, "Error: --partition 4: the topic has the partitions 0 to 3\n")


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
async def test_new_records_are_printed_as_they_come_until_a_signal(
    settings: Settings, terminal: Terminal, signal_number: int
) -> None:
    async with scripted_worker(settings) as worker, terminal.start("tail", "tokens") as process:
        saying = asyncio.create_task(_say_on_and_on(worker.fence))
        read = await read_until(process.stdout, "\n")
        saying.cancel()
        process.send_signal(signal_number)
        tail = await ended(process)
    assert json.loads(read.partition("\n")[0])["value"] == {"type": "fence"}
    assert (tail.code, tail.err) == (0, "")


async def _say_on_and_on(fence: Any) -> None:
    while True:
        await fence(0)
        await asyncio.sleep(0.2)


async def test_dead_letter_is_printed_with_its_cause(settings: Settings, terminal: Terminal) -> None:
    cause = Cause(code="invalid_request", message="m", topic="requests", partition=1, offset=2, failed_at=3)
    broken, headers = encode(Request(request_id="r", user_id="ann", prompt="p"), "protobuf")
    dead = producer(settings.cluster)
    await dead.start()
    for key, value, original in [(b"ann", b"\xff", None), (b"bob", None, [("x", None)]), (b"ann", broken, headers)]:
        topic = settings.topic("dead-letters")
        await dead.send_and_wait(topic, value, key=key, headers=dead_letter_headers(cause, original), partition=0)
    await dead.stop()
    tail = await terminal.run("tail", "dead-letters", *PAST)
    not_text, nothing, protobuf = lines(tail.out)
    assert next(iter(not_text)) == "cause"
    assert not_text["value"] == {"base64": "/w=="}
    assert not_text["cause"] == {
        "code": "invalid_request",
        "message": "m",
        "topic": "requests",
        "partition": 1,
        "offset": 2,
        "failed_at": 3,
    }
    assert (nothing["key"], nothing["value"]) == ("bob", None)
    assert protobuf["value"] == broken.decode()


async def test_every_topic_can_be_read_also_those_that_the_policy_names(
    settings: Settings, terminal: Terminal, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text('[[intake]]\ntopic = "theirs"\nfields = { prompt = "text" }\nuser_id = "u"\n')
    unnamed = await terminal.run("tail", "theirs", *PAST)
    assert "set PARLEY_POLICY to read one of an intake or an egress; there are tokens" in unnamed.err
    terminal = terminal.having(policy=tmp_path / "policy.toml")
    for topic in TOPICS:
        tail = await terminal.run("tail", topic, *PAST)
        assert (tail.code, tail.out, tail.err) == (0, "", "")
    theirs = await terminal.run("tail", "theirs", *PAST)
    assert (theirs.code, theirs.out.count("\n")) == (2, 0)
    assert theirs.err == "Error: the topic 'theirs' does not exist: create it with `parley topics create`\n"
    wrong = await terminal.run("tail", "thiers", *PAST)
    assert wrong.code == 2
    assert wrong.err.startswith("Error: there is no topic 'thiers'; there are tokens, requests, turns, dead-letters")
    assert wrong.err.endswith("waits, theirs\n")


async def test_where_no_worker_has_run_there_is_nothing_to_verify(settings: Settings, terminal: Terminal) -> None:
    """`parley topics create` would not help: the changelog is the workers'."""
    verified = await terminal.run("audit", "verify")
    topic = settings.topic(f"{settings.app_id}-audit-changelog")
    why = "no worker has run yet, so nothing is audited; or it was deleted"
    assert (verified.code, verified.err) == (1, f"Error: there is no {topic!r}: {why}\n")
