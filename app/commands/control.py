"""`parley cancel` and `parley erase`: records of `controls`, and what became of them."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from aiokafka.errors import KafkaError

from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.kafka.clients import KafkaUnusableError, partitions_of, producer, start
from app.printable import printable
from app.settings import Settings
from app.wire.codec import encode
from app.wire.control import Cancel, Erase
from app.wire.limits import REQUEST_ID_FORM, is_request_id, is_user_id

if TYPE_CHECKING:
    from app.gateway.erasure.erasures import Erasures

_PATIENCE_S = 15.0
_CHECK_EVERY_S = 0.1


@click.command()
@click.argument("request_id", metavar="REQUEST")
@click.option("-u", "--user", required=True, help="Whose request it is.")
def cancel(request_id: str, user: str) -> None:
    """Cancel the answer to REQUEST; its text so far is kept.

    A cancel that comes before its request is remembered for five minutes.
    """
    if not is_request_id(request_id):
        raise WrongUseError(f"REQUEST must be {REQUEST_ID_FORM}")
    _check_user(user)
    run(_sent(settings_of_terminal(), Cancel(request_id=request_id, user_id=user)))
    note(f"asked to cancel {request_id}; its end: parley tail tokens --from-beginning --request {request_id}")


@click.command(short_help="Delete the conversations and vectors of a user.")
@click.argument("user")
@click.option("--yes", is_flag=True, help="Do not ask; needed where no terminal is.")
@click.option("--no-wait", "waits", flag_value=False, default=True, help="Do not wait until the workers have done it.")
def erase(user: str, *, yes: bool, waits: bool) -> None:
    """Delete the conversations and vectors of USER, and cancel what USER has asked before.

    Waits until all partitions have done it; Ctrl-C ends the waiting, not the erasure.
    """
    _check_user(user)
    settings = settings_of_terminal()
    if not yes:
        if not sys.stdin.isatty():
            raise WrongUseError("nothing is erased: say --yes where no terminal is")
        click.confirm(f"Delete every conversation and vector of {printable(user)}?", abort=True)
    run(_erase(settings, user, waits=waits))


def _check_user(user: str) -> None:
    if not is_user_id(user):
        raise WrongUseError("a user id has 1-128 characters")


async def _sent(settings: Settings, control: Cancel | Erase) -> int:
    """When the broker received it, in Unix milliseconds."""
    topic = settings.topic("controls")
    await partitions_of(settings.cluster, [topic])
    value, headers = encode(control, settings.wire_format)
    controls = producer(settings.cluster)
    await start(controls)
    try:
        receipt = await controls.send_and_wait(topic, value, key=control.user_id.encode(), headers=headers)
    except KafkaError as error:
        raise KafkaUnusableError(f"could not send to {topic!r}: {error}") from None
    finally:
        await controls.stop()
    return int(receipt.timestamp)


async def _erase(settings: Settings, user: str, *, waits: bool) -> None:
    from app.gateway.erasure.erasures import Erasures

    topic = settings.topic("controls")
    partitions = (await partitions_of(settings.cluster, [topic]))[topic]
    erasures = Erasures(settings, partitions, lambda *_: None, lambda *_: None)
    if waits:
        await erasures.start()
    try:
        at = await _sent(settings, Erase(user_id=user))
        note(f"the erasure of {printable(user)} is on {topic!r}; it holds for what was asked before {_time(at)}")
        if waits:
            erasures.asked(user, at)
            await _until_done(settings, erasures, user, partitions)
    finally:
        await erasures.stop()


async def _until_done(settings: Settings, erasures: Erasures, user: str, partitions: int) -> None:
    from app.gateway.erasure.report import report

    hint = asyncio.get_running_loop().call_later(
        _PATIENCE_S, note, "[not done yet; is a worker running, and Milvus? `faust -A app worker -l info`]"
    )
    try:
        while (now := report(erasures, user, settings, partitions))["remaining"]:  # noqa: ASYNC110
            await asyncio.sleep(_CHECK_EVERY_S)
    finally:
        hint.cancel()
    click.echo(f"{printable(user)} is erased: memory and search, {partitions} partitions")
    last = max(now["logs"].items(), key=lambda log: log[1])
    note(f"Kafka's own copies leave with the retention, the last ones ({last[0]}) by {_time(last[1])}")


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")
