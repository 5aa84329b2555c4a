"""`parley waits`: the answers that sleep. `parley waits wake`: end what they wait for."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Sequence

import click
import msgspec
from aiokafka.errors import KafkaError

from app.commands.scan import records_since
from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.kafka.clients import KafkaUnusableError, partitions_of, producer, start, stop
from app.policy.tools import BY_USER
from app.process.printable import printable_json
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.codec import encode
from app.wire.control import Cancel, Decide
from app.wire.error import WireError
from app.wire.tool_records import ToolResultRecord
from app.wire.waits import Wait, WaitRecord, read_open

WOKEN_BY_HAND = "an operator has ended this wait"
_PATIENCE_S = 15.0
_CHECK_EVERY_S = 0.3


@click.group(invoke_without_command=True)
@click.option("-u", "--user", help="Only this user's.")
@click.option("-n", "--count", is_flag=True, help="Print how many there are.")
@click.pass_context
def waits(context: click.Context, user: str | None, *, count: bool) -> None:
    """Print the answers that sleep, one JSON object a line, those that sleep longest first."""
    if context.invoked_subcommand is not None:
        return
    found = run(asleep(settings_of_terminal(), user))
    if count:
        click.echo(len(found))
        return
    for record in found:
        click.echo(printable_json(msgspec.json.encode(record)))
    if not found:
        note("no answer sleeps")


@waits.command(short_help="End what answers wait for, so that none sleeps.")
@click.option("--all", "is_all", is_flag=True, help="Of all users.")
@click.option("-u", "--user", help="Only of this user.")
@click.option("--as", "name", help="Who rejects approvals; by default the name of this login.")
def wake(user: str | None, name: str | None, *, is_all: bool) -> None:
    """Wake the answers that sleep, as if what they wait for had failed.

    A call of a tool gets an error as its result, an approval is rejected, a request for later and an agent's answer are
    cancelled. What comes first counts: a result or a decision that is there already. Answers go on with that, and may
    sleep again while the policy has the table [waits].
    """
    if is_all == (user is not None):
        raise WrongUseError("say whose answers are woken: either --all or --user")
    settings = settings_of_terminal()
    begun = run(end_waits(settings, user, name or getpass.getuser()))
    left = run(_left(settings, begun))
    click.echo(len(begun) - len(left))
    if left:
        note(f"{len(left)} still sleep: is a worker running? `faust -A app worker -l info`")


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


async def end_waits(settings: Settings, user: str | None, name: str) -> list[WaitRecord]:
    """Send what ends all waits of the answers that sleep, and return these. Raises `KafkaUnusableError`."""
    found = [one for one in await asleep(settings, user) if one.state == "asleep"]
    names = {topic: settings.topic(topic) for topic in (TopicName.CONTROLS, TopicName.TOOL_RESULTS)}
    await partitions_of(settings.cluster, list(names.values()))
    records = producer(settings.cluster)
    await start(records)
    try:
        for one in found:
            for wait in one.waits:
                topic, record = _end_of(one, wait, name)
                value, headers = encode(record, settings.wire_format)
                await records.send(names[topic], value, key=one.user_id.encode(), headers=headers)
        await records.flush()
    except KafkaError as error:
        raise KafkaUnusableError(f"could not send to {' and '.join(names.values())}: {error}") from None
    finally:
        await stop(records)
    return found


def _end_of(of: WaitRecord, wait: Wait, name: str) -> tuple[TopicName, Cancel | Decide | ToolResultRecord]:
    """The record that ends the wait without what is waited for, and its topic."""
    if wait.kind == "timer":
        return TopicName.CONTROLS, Cancel(request_id=of.request_id, user_id=of.user_id)
    if wait.kind == "answer":
        return TopicName.CONTROLS, Cancel(request_id=wait.wait_id, user_id=of.user_id)
    if wait.kind == "approval":
        by = f"{wait.by}/{of.user_id if wait.by == BY_USER else name}"
        decision = Decide(
            request_id=of.request_id,
            user_id=of.user_id,
            wait_id=wait.wait_id,
            decision="rejected",
            reason=WOKEN_BY_HAND,
            by=by,
        )
        return TopicName.CONTROLS, decision
    if wait.kind != "tool":
        raise click.ClickException(f"{of.request_id} waits for {wait.kind!r}, which this version does not know")
    return TopicName.TOOL_RESULTS, ToolResultRecord(
        tool_call_id=wait.wait_id,
        request_id=of.request_id,
        user_id=of.user_id,
        content=f"error: {WOKEN_BY_HAND}",
        is_error=True,
    )


async def _left(settings: Settings, begun: Sequence[WaitRecord]) -> list[WaitRecord]:
    """Those that still sleep for the same after a while."""
    loop = asyncio.get_running_loop()
    until, left = loop.time() + _PATIENCE_S, [*begun]
    while left:
        now = {(one.user_id, one.request_id): one.waits for one in await asleep(settings) if one.state == "asleep"}
        left = [one for one in left if now.get((one.user_id, one.request_id)) == one.waits]
        if loop.time() >= until:
            break
        await asyncio.sleep(_CHECK_EVERY_S if left else 0)
    return left
