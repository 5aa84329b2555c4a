"""`parley approvals`, `parley approve`, `parley reject`: list the calls that wait for an approval, and decide them."""

from __future__ import annotations

import asyncio
import getpass
from typing import Literal

import click
import msgspec

from app.commands.control import sent
from app.commands.scan import records_since
from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.commands.waits import asleep
from app.policy.tools import BY_USER
from app.process.printable import printable_json
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.arguments import arguments_mistake
from app.wire.codec import decode
from app.wire.control import MAX_ARGUMENTS_BYTES, MAX_REASON_LENGTH, Decide
from app.wire.waits import DecidedWait, Wait, WaitRecord

_PATIENCE_S = 10.0
_CHECK_EVERY_S = 0.3

Of = tuple[WaitRecord, Wait]


@click.command()
@click.option("--by", metavar="DESK", help="Only what this desk decides.")
def approvals(by: str | None) -> None:
    """Print the calls that wait for an approval, one JSON object a line, those that wait longest first."""
    found = run(waiting(settings_of_terminal()))
    shown = [(record, wait) for record, wait in found if by in {None, wait.by}]
    for record, wait in shown:
        of = {"id": wait.wait_id, "user_id": record.user_id, "request_id": record.request_id, "since": record.since}
        click.echo(printable_json(msgspec.json.encode({**of, **wait.details, "arguments": wait.arguments})))
    if not shown:
        note("no call waits for an approval")


@click.command()
@click.argument("wait_id", metavar="ID")
@click.option("--arguments", metavar="JSON", help="With these arguments in place of the model's.")
@click.option("--as", "name", help="Who decides; by default the name of this login.")
def approve(wait_id: str, arguments: str | None, name: str | None) -> None:
    """Let the call ID be made. `parley approvals` prints the ids."""
    _decide(wait_id, "approved" if arguments is None else "edited", name, arguments=arguments)


@click.command()
@click.argument("wait_id", metavar="ID")
@click.option("--reason", help="Why; the model reads it.")
@click.option("--as", "name", help="Who decides; by default the name of this login.")
def reject(wait_id: str, reason: str | None, name: str | None) -> None:
    """Let the call ID not be made. `parley approvals` prints the ids."""
    if len(reason or "") > MAX_REASON_LENGTH:
        raise WrongUseError(f"--reason has more than {MAX_REASON_LENGTH} characters")
    _decide(wait_id, "rejected", name, reason=reason)


def _decide(
    wait_id: str,
    decision: Literal["approved", "edited", "rejected"],
    name: str | None,
    *,
    arguments: str | None = None,
    reason: str | None = None,
) -> None:
    settings = settings_of_terminal()
    of = next((one for one in run(waiting(settings)) if one[1].wait_id == wait_id), None)
    if of is None:
        raise WrongUseError("no call with this ID waits for an approval; `parley approvals` prints those that do")
    record, wait = of
    if arguments is not None and len(arguments.encode()) > MAX_ARGUMENTS_BYTES:
        raise WrongUseError(f"--arguments has more than {MAX_ARGUMENTS_BYTES} bytes")
    schema = None if wait.parameters is None else msgspec.json.decode(wait.parameters)
    if arguments is not None and (why := arguments_mistake(arguments, schema)) is not None:
        raise WrongUseError(f"--arguments {why}")
    control = Decide(
        request_id=record.request_id,
        user_id=record.user_id,
        wait_id=wait_id,
        decision=decision,
        by=f"{wait.by}/{record.user_id if wait.by == BY_USER else name or getpass.getuser()}",
        arguments=arguments,
        reason=reason,
    )
    decided = run(decided_by(settings, control, record.since))
    if decided is None:
        note("sent; no worker has said yet which decision counts")
        return
    is_own = (decided.decision, decided.by) == (decision, control.by)
    shown = {"decision": decided.decision, "by": decided.by, "counted": is_own}
    click.echo(printable_json(msgspec.json.encode(shown)))


async def waiting(settings: Settings) -> list[Of]:
    records = await asleep(settings)
    return [(record, wait) for record in records for wait in record.waits if wait.kind == "approval"]


async def decided_by(settings: Settings, control: Decide, since: int) -> DecidedWait | None:
    """Send the decision, and return the first since then, by the topic `waits`; None if that tells none in time."""
    at = await sent(settings, control)
    until = asyncio.get_running_loop().time() + _PATIENCE_S
    while asyncio.get_running_loop().time() < until:
        async for record in records_since(settings, TopicName.WAITS, since):
            state = None if record.value is None else decode(WaitRecord, record.value, record.headers)
            for one in () if state is None else state.decided:
                if one.wait_id == control.wait_id:
                    return one
        since = at
        await asyncio.sleep(_CHECK_EVERY_S)
    return None
