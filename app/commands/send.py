"""`parley send`: write records from a file to Kafka."""

from __future__ import annotations

import asyncio
import sys
from typing import TextIO

import click

from app.commands.sender import Sender
from app.commands.terminal import note, run, settings_of_terminal
from app.settings import Settings


@click.command(short_help="Send the records of a file.")
@click.argument("file", type=click.File(encoding="utf-8", errors="surrogateescape"))
@click.option(
    "--topic", type=click.Choice(["requests", "controls"]), default="requests", show_default=True, help="Where to."
)
def send(file: TextIO, topic: str) -> None:
    """Send each line of FILE, a JSON record, with its user as the key; `-` is standard input.

    A line that violates the contract is reported and not sent. A request without `request_id` gets one, which is
    printed with the number of its line, as JSON.
    """
    failed = run(_send(settings_of_terminal(), file, topic))
    sys.exit(1 if failed else 0)


async def _send(settings: Settings, file: TextIO, topic: str) -> int:
    sender, number = Sender(settings, topic), 0
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
