"""Faust's commands beside `worker`: what they mean for Parley's application, and their errors in one line.

`send` knows Parley's topics by their names in the settings, with or without an `@`. `tables` lists Parley's own tables,
which are not `faust.Table`, and `reset` says how these are built anew.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import click
from faust.cli.base import Command
from faust.cli.reset import reset
from faust.cli.send import send
from faust.cli.tables import tables

from app.delivery.record import SOURCES
from app.process.process_end import ExitCode, end_process
from app.settings import Settings
from tables.records import Table

AGENTS = {
    "requests": "What users ask; answers go to `tokens`.",
    "controls": "Cancels, erasures and decisions.",
    "turns": "Answers that are over, for the index.",
}
_PATIENCE_S = 20.0
_execute = Command.execute


def tell_about_parley(parley: Settings) -> None:
    """From now on, in this process."""

    async def execute(command: Command, *arguments: Any, **options: Any) -> None:
        """An error of a service is told as a traceback."""
        try:
            await _execute(command, *arguments, **options)
        except click.UsageError as error:
            sys.stdout.flush()
            click.echo(f"Error: {' '.join(error.format_message().split())}", err=True)
            end_process(ExitCode.WRONG_USE)

    def topic_of(command: Any, entity: str) -> Any:
        name = entity.removeprefix("@")
        is_own = name in SOURCES
        if entity.startswith("@") and not is_own:
            raise click.UsageError(f"there is no agent {entity}; there are @{', @'.join(SOURCES)}")
        return command.app.topic(parley.topic(name) if is_own else name)

    async def send_within_patience(command: Any, entity: str, *arguments: Any, **options: Any) -> None:
        if entity.removeprefix("@") in SOURCES and options.get("key") is None:
            raise click.UsageError(f"whose record is it? Name the user: `faust -A app send {entity} … --key nina`")
        pauses = options["repeat"] * (1.0 + options["max_latency"])
        try:
            async with asyncio.timeout(_PATIENCE_S + pauses):
                await _send(command, entity, *arguments, **options)
        except TimeoutError:
            why = f"within {_PATIENCE_S:.0f} s: no topic of that name, or no broker answers at {parley.cluster}"
            raise click.UsageError(f"Kafka has not taken the record for {entity} {why}") from None

    async def list_tables(command: Any) -> None:
        rows = [(table.value, "of Parley, not a faust.Table: docs/built-on.md#tables") for table in Table]
        command.say(command.tabulate(rows, title=command.title, headers=["name", "help"]))

    async def refuse_to_reset(_command: Any) -> None:
        why = "Parley's tables are not Faust's, so nothing was reset"
        raise click.UsageError(f"{why}; stop the worker and delete {parley.data_dir}: it reads them back from Kafka")

    Command.execute = execute
    send.to_topic, send.run = topic_of, send_within_patience
    tables.run, reset.run = list_tables, refuse_to_reset


_send = send.run
