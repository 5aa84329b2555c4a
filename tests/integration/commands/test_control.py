"""`parley cancel` and `parley erase`."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition

from app.kafka.clients import consumer
from app.settings import Settings
from app.wire.codec import decode
from app.wire.control import Cancel, Control, Erase, EraseConversation
from app.wire.ids import partition_for
from app.wire.request import Request
from tests.integration.commands.terminal import Terminal, ended, read_until
from tests.integration.scripted_worker import scripted_worker


@pytest.mark.parametrize("wire_format", ["json", "protobuf"])
async def test_an_answer_is_cancelled_by_its_request(settings: Settings, terminal: Terminal, wire_format: str) -> None:
    settings = settings.model_copy(update={"wire_format": wire_format})
    async with scripted_worker(settings) as worker:
        request = Request(request_id="r1", user_id="ann", prompt="one wait two")
        answer = asyncio.create_task(worker.answer(request, partition_for("ann", settings.partitions)))
        cancel = await terminal.having(wire_format=wire_format).run("cancel", "r1", "--user", "ann")
        async with asyncio.timeout(120):
            await answer
    assert (cancel.code, cancel.out) == (0, "")
    assert worker.controls == [Cancel(request_id="r1", user_id="ann")]


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ((), Erase(user_id="ann")),
        (("--conversation", "a trip"), EraseConversation(user_id="ann", conversation_id="a trip")),
    ],
)
async def test_an_erasure_is_a_record_of_its_user(
    settings: Settings, terminal: Terminal, options: tuple[str, ...], sent: Control
) -> None:
    erase = await terminal.run("erase", "ann", *options, "--yes", "--no-wait")
    assert (erase.code, erase.out) == (0, "")
    at = TopicPartition(settings.topic("controls"), partition_for("ann", settings.partitions))
    controls = consumer(settings.cluster)
    controls.assign([at])
    await controls.start()
    await controls.seek_to_beginning()
    async with asyncio.timeout(120):
        record = await controls.getone()
    await controls.stop()
    assert (record.key, decode(Control, record.value, record.headers)) == (b"ann", sent)


async def test_nothing_is_erased_by_mistake(terminal: Terminal) -> None:
    """Without a terminal nobody can confirm it."""
    erase = await terminal.run("erase", "ann", typed="y\n")
    assert (erase.code, erase.err) == (2, "Error: nothing is erased: say --yes where no terminal is\n")


async def test_the_end_of_the_waiting_does_not_end_the_erasure(terminal: Terminal) -> None:
    """There is no worker that would do it."""
    async with terminal.start("erase", "ann", "--yes") as process:
        await read_until(process.stderr, "is on")
        process.terminate()
        waiting = await ended(process)
    assert (waiting.code, waiting.out) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cancel", "r 1", "--user", "ann"), "REQUEST must be 1-64 of A-Z a-z 0-9 . _ : -, and not . or .."),
        (("cancel", "r1", "--user", ""), "a user id has 1-128 characters"),
        (("erase", "a" * 129, "--yes"), "a user id has 1-128 characters"),
    ],
)
async def test_what_no_worker_would_accept_is_not_sent(
    terminal: Terminal, arguments: tuple[str, ...], message: str
) -> None:
    wrong = await terminal.run(*arguments)
    assert (wrong.code, wrong.err) == (2, f"Error: {message}\n")
