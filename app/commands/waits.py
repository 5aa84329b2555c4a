"""`parley waits`: the answers that sleep until a tool answers."""

from __future__ import annotations

import click
import msgspec

from app.commands.scan import records_since
from app.commands.terminal import note, run, settings_of_terminal
from app.process.printable import printable_json
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.error import WireError
from app.wire.waits import WaitRecord, read_open


@click.command()
@click.option("-u", "--user", help="Only this user's.")
@click.option("-n", "--count", is_flag=True, help="Print how many there are.")
def waits(user: str | None, *, count: bool) -> None:
    """Print the answers that sleep, one JSON object a line, those that sleep longest first."""
    found = run(asleep(settings_of_terminal(), user))
    if count:
        click.echo(len(found))
        return
    for record in found:
        click.echo(printable_json(msgspec.json.encode(record)))
    if not found:
        note("no answer sleeps")


async def asleep(settings: Settings, user: str | None = None) -> list[WaitRecord]:
    """The newest record of each answer that sleeps or wakes. Raises `KafkaUnusableError`."""
    newest: dict[bytes | None, WaitRecord] = {}
    async for record in records_since(settings, TopicName.WAITS, 0):
        newest.pop(record.key, None)
        try:
            state = read_open(record.value, record.headers)
        except WireError as error:
            note(f"waits partition {record.partition} offset {record.offset} is skipped: {error}")
            continue
        if state is not None and user in {None, state.user_id}:
            newest[record.key] = state
    return sorted(newest.values(), key=lambda one: one.since)
