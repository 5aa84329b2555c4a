"""`parley cancel` and `parley erase`: records of `controls`, and what became of them."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
from aiokafka.errors import KafkaError

from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.kafka.clients import KafkaUnusableError, partitions_of, producer, start, stop
from app.process.printable import printable
from app.settings import Settings
from app.wire.codec import encode
from app.wire.control import Cancel, Control
from app.wire.control import erase as erase_of
from app.wire.ids import MAX_NAME_LENGTH, REQUEST_ID_FORM, is_conversation_id, is_request_id, is_user_id
from tables.erasures import Scope

if TYPE_CHECKING:
    from app.gateway.erasure.erasures import ErasureBook

_PATIENCE_S = 15.0
_CHECK_EVERY_S = 0.1


@click.command()
@click.argument("request_id", metavar="REQUEST")
@click.option("-u", "--user", required=True, help="Whose request it is.")
def cancel(request_id: str, user: str) -> None:
    """Cancel the answer to REQUEST; its text so far is kept.

    A cancel that comes before its request is remembered for five minutes, and while what was sent before it is open.
    """
    if not is_request_id(request_id):
        raise WrongUseError(f"REQUEST must be {REQUEST_ID_FORM}")
    _check_user(user)
    run(sent(settings_of_terminal(), Cancel(request_id=request_id, user_id=user)))
    note(f"asked to cancel {request_id}; its end: parley tail tokens --from-beginning --request {request_id}")


@click.command(short_help="Delete a user's conversations and vectors, or one conversation.")
@click.argument("user")
@click.option("-c", "--conversation", help="Only this conversation.")
@click.option("--yes", is_flag=True, help="Do not ask; needed where no terminal is.")
@click.option("--no-wait", "waits", flag_value=False, default=True, help="Do not wait until the workers have done it.")
def erase(user: str, *, conversation: str | None, yes: bool, waits: bool) -> None:
    """Delete the conversations and vectors of USER, or one conversation, and cancel what was asked there before.

    Waits until all partitions have done it; Ctrl-C ends the waiting, not the erasure.
    """
    _check_user(user)
    if conversation is not None and not is_conversation_id(conversation):
        raise WrongUseError(f"a conversation id has at most {MAX_NAME_LENGTH} characters")
    scope = Scope(user, conversation)
    settings = settings_of_terminal()
    if not yes:
        if not sys.stdin.isatty():
            raise WrongUseError("nothing is erased: say --yes where no terminal is")
        what = "every conversation and vector" if conversation is None else f"conversation {printable(conversation)}"
        click.confirm(f"Delete {what} of {printable(user)}?", abort=True)
    run(_erase(settings, scope, waits=waits))


def _check_user(user: str) -> None:
    if not is_user_id(user):
        raise WrongUseError("a user id has 1-128 characters")


async def sent(settings: Settings, control: Control) -> int:
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
        await stop(controls)
    return int(receipt.timestamp)


async def _erase(settings: Settings, scope: Scope, *, waits: bool) -> None:
    from app.gateway.erasure.erasures import ErasureBook

    topic = settings.topic("controls")
    partitions = (await partitions_of(settings.cluster, [topic]))[topic]
    erasures = ErasureBook(settings, partitions, lambda *_: None, lambda *_: None)
    if waits:
        await erasures.start()
    try:
        at = await sent(settings, erase_of(scope.user_id, scope.conversation_id))
        note(f"the erasure of {_named(scope)} is on {topic!r}; it holds for what was asked before {_time(at)}")
        if waits:
            erasures.asked(scope, at)
            await _until_done(settings, erasures, scope, partitions)
    finally:
        await erasures.stop()


async def _until_done(settings: Settings, erasures: ErasureBook, scope: Scope, partitions: int) -> None:
    from app.gateway.erasure.report import report

    hint = asyncio.get_running_loop().call_later(
        _PATIENCE_S, note, "[not done yet; is a worker running, and Milvus? `faust -A app worker -l info`]"
    )
    try:
        while (now := report(erasures, scope, settings, partitions))["remaining"]:  # noqa: ASYNC110
            await asyncio.sleep(_CHECK_EVERY_S)
    finally:
        hint.cancel()
    click.echo(f"{_named(scope)} is erased: memory and search, {partitions} partitions")
    last = max(now["logs"].items(), key=lambda log: log[1])
    note(f"Kafka's own copies leave with the retention, the last ones ({last[0]}) by {_time(last[1])}")


def _named(scope: Scope) -> str:
    user = printable(scope.user_id)
    return user if scope.conversation_id is None else f"conversation {printable(scope.conversation_id)} of {user}"


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")
