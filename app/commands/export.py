"""`parley export`: past turns as training data of those who have consented, or as requests to another model."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

import click
import msgspec
from aiokafka.errors import KafkaError

from app.commands.moment import Moment, check_period
from app.commands.past_requests import past_requests
from app.commands.stored_turns import TurnFilter, stored_turns
from app.commands.terminal import WrongUseError, note, run, settings_of_terminal
from app.features.guard.stored import hiding_by
from app.features.guard.texts import indexed_turn
from app.kafka.clients import KafkaUnusableError
from app.policy.check import read_policy
from app.policy.file import Policy, PolicyError
from app.search.index import HideError
from app.search.kept_rows import guard_secrets
from app.search.reindex import HideStored
from app.settings import Settings
from app.wire.turn import Turn
from models.interface.generation import FinishReason

_ALL_OTHERS = "*"


@dataclass(slots=True)
class _Exported:
    """Turns by what became of them."""

    lines: int = 0
    turns: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Consent:
    """A tenant with `training = true` in the policy; with `users`, of these alone."""

    policy: Policy
    users: frozenset[str] | None

    def covers(self, turn: Turn) -> bool:
        rule = self.policy.tenants.get(turn.tenant or "") or self.policy.tenants.get(_ALL_OTHERS)
        return rule is not None and rule.training and (self.users is None or turn.user_id in self.users)


@click.command(short_help="Write past turns as training data, of those who consented.")
@click.argument("file", type=click.File("wb"), default="-")
@click.option("--since", type=Moment(), default="7d", show_default=True, help="Turns from this time on.")
@click.option("--until", type=Moment(), help="Only before this time.")
@click.option("--tenant", help="Only this tenant; '' for turns without one.")
@click.option("--model", help="Only answers of this model, or this version of one.")
@click.option("--include-replaced", is_flag=True, help="Also turns in whose place a later version stands.")
@click.option("--users", type=click.File("rb"), help="Only users in this file, an id a line.")
@click.option("--by", type=click.Choice(["conversation", "turn"]), default="conversation", help="What a line is.")
@click.option("--requests", "asked", metavar="MODEL", help="Write requests that ask MODEL the same again.")
def export(file: IO[bytes], users: IO[bytes] | None, by: str, asked: str | None, **options: object) -> None:
    """Write past turns to FILE (standard output) as lines of {"messages": [...]}, as trainers read them.

    Only tenants with `training = true` in the policy file are exported; without one, nothing. Left out are erased
    turns, those that an edit or another answer has replaced, answers that did not end in `stop`, answers with calls of
    tools, and those that repeat another one. Private values that the guard has found are placeholders.

    With --requests MODEL each line is a request that asks MODEL again, with the turns before it in its conversation:
    `parley export --requests small | parley send - --at-once 16`. These stay with Parley, so they need no consent; the
    texts are as they were said. Turns with calls of tools are left out.
    """
    choice = TurnFilter(**options)  # type: ignore[arg-type]
    check_period(choice.since, choice.until)
    settings = settings_of_terminal()
    listed = None if users is None else listed_users(users)
    if asked is not None:
        count = run(_export_requests(settings, choice, listed, asked, file))
        note(f"{count} requests" if count else "no such turns")
        return
    try:
        policy = read_policy(settings)
        hide = hiding_by(policy)
    except PolicyError as error:
        raise WrongUseError(str(error)) from None
    if not any(rule.training for rule in policy.tenants.values()):
        raise WrongUseError("no tenant has consented: the policy file has no `training = true` in [tenants.NAME]")
    done = run(_export(settings, choice, Consent(policy, listed), hide, file, by_turn=by == "turn"))
    left_out = ", ".join(f"{count} {why}" for why, count in sorted(done.left_out.items()))
    note(f"{done.turns} turns in {done.lines} lines{left_out and '; left out: '}{left_out}")


def listed_users(lines: IO[bytes]) -> frozenset[str]:
    """The ids of a file with one a line, exactly as they stand there: `"nina "` and `"nina"` are two users."""
    try:
        ids = lines.read().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise WrongUseError("--users: the file must be UTF-8") from None
    return frozenset(one.removesuffix("\r") for one in ids) - {""}


async def _export_requests(
    settings: Settings, choice: TurnFilter, users: frozenset[str] | None, model: str, file: IO[bytes]
) -> int:
    count = 0
    with _complete(lambda: count):
        async for request in past_requests(settings, choice, users, model):
            file.write(msgspec.json.encode(request) + b"\n")
            file.flush()
            count += 1
    return count


@contextmanager
def _complete(lines: Callable[[], int]) -> Iterator[None]:
    """Say it if what has been written is not all."""
    try:
        yield
    except (KafkaError, KafkaUnusableError, HideError) as error:
        failure = click.ClickException(f"{error}; what has been written is incomplete")
        if isinstance(error, KafkaUnusableError):
            failure.exit_code = error.exit_code
        raise failure from None
    except BrokenPipeError:
        sys.exit(1)
    except asyncio.CancelledError:
        note(f"stopped after {lines()} lines: what has been written is incomplete")
        sys.exit(1)


async def _export(
    settings: Settings, choice: TurnFilter, consent: Consent, hide: HideStored, file: IO[bytes], *, by_turn: bool
) -> _Exported:
    done = _Exported()
    with _complete(lambda: done.lines):
        kept = await guard_secrets(settings)
        async for stored in stored_turns(settings, choice):
            secret = kept.get(stored.partition) or secrets.token_bytes(32)
            wanted = []
            for turn in stored.turns:
                if why := _left_out(turn, consent) or ("that were replaced" if stored.has_later(turn) else None):
                    done.left_out[why] += 1
                else:
                    wanted.append(await _hidden(turn, secret, hide))
            for line in _lines(wanted, by_turn=by_turn):
                file.write(msgspec.json.encode({"messages": line}) + b"\n")
                done.lines += 1
            done.turns += len(wanted)
        file.flush()
    return done


def _left_out(turn: Turn, consent: Consent) -> str | None:
    if not consent.covers(turn):
        return "without consent"
    if turn.cached is not None:
        return "that repeat another answer"
    if turn.tool_calls:
        return "with calls of tools"
    return None if turn.finish_reason is FinishReason.STOP and turn.answer else "that did not end in `stop`"


async def _hidden(turn: Turn, secret: bytes, hide: HideStored) -> Turn:
    """The turn without private values: those that were found when it was answered, or that are found now."""
    return indexed_turn(turn, secret, turn.private) if turn.private else await hide(turn, secret)


def _lines(turns: list[Turn], *, by_turn: bool) -> Iterator[list[dict[str, str]]]:
    """The messages of each conversation, or of each turn."""
    lines: dict[object, list[dict[str, str]]] = {}
    for number, turn in enumerate(turns):
        line = lines.setdefault(number if by_turn else (turn.user_id, turn.conversation_id), [])
        line += ({"role": "user", "content": turn.prompt}, {"role": "assistant", "content": turn.answer})
    yield from lines.values()
