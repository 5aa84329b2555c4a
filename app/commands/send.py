"""`parley send`: write records from a file to Kafka."""

from __future__ import annotations

import asyncio
import sys
from typing import TextIO

import click

from app.commands.open_answers import OpenAnswers
from app.commands.sender import Sender
from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.settings import Settings


@click.command(short_help="Send the records of a file.")
@click.argument("file", type=click.File(encoding="utf-8", errors="surrogateescape"))
@click.option(
    "--topic", type=click.Choice(["requests", "controls"]), default="requests", show_default=True, help="Where to."
)
@click.option("--at-once", type=click.IntRange(1, 1000), help="Wait for the answers, with at most so many open.")
def send(file: TextIO, topic: str, at_once: int | None) -> None:
    """Send each line of FILE, a JSON record, with its user as the key; `-` is standard input.

    A line that violates the contract is reported and not sent. A request without `request_id` gets one, which is
    printed with the number of its line, as JSON.

    With --at-once each answer is printed as a line of JSON when it has ended, and the exit code is 1 if one has failed
    or was cut.
    """
    if at_once is None:
        failed = run(_send(settings_of_terminal(), file, topic)) > 0
    elif topic == "requests":
        failed = run(_ask(settings_of_terminal(), file, at_once))
    else:
        raise WrongUseError("--at-once is for requests: controls have no answers")
    sys.exit(1 if failed else 0)


async def _ask(settings: Settings, file: TextIO, at_once: int) -> bool:
    """Whether a line was not sent, or an answer failed or was cut."""
    answers = OpenAnswers(settings, at_once)
    try:
        async with answers:
            failed = await _send(settings, file, "requests", answers)
    finally:
        if answers.ends:
            note(", ".join(f"{count} {what}" for what, count in answers.ends.items()))
    return failed > 0 or bool(answers.ends.keys() - {"answered"})


async def _send(settings: Settings, file: TextIO, topic: str, answers: OpenAnswers | None = None) -> int:
    sender, number = Sender(settings, topic, answers), 0
    try:
        async with sender:
            for number, line in enumerate(file, 1):
                if line.strip():
                    await sender.send(number, line)
    except asyncio.CancelledError:
        note(f"stopped at line {number}: sent {sender.sent} to {settings.topic(topic)!r}")
        sys.exit(1)
    note(f"sent {sender.sent} to {settings.topic(topic)!r}" + (f", {sender.failed} not" if sender.failed else ""))
    return sender.failed
