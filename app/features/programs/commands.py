"""What a program may do in a step: the content of its record on `tool-results`, JSON with a `command`."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from app.wire.ids import is_tool_name
from app.wire.request import AtLeastOne

MOST_S = 30 * 86_400
MAX_SAID = 65_536
"""Characters of a text that is one event on `tokens`."""
_DESK = r"^[A-Za-z0-9_.-]{1,64}$"
_QUOTED = re.compile(r"`[^`]*`|'[^']*'")

Seconds = Annotated[float, Meta(gt=0, le=MOST_S)]
Words = Annotated[str, Meta(min_length=1, max_length=MAX_SAID)]


class _Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="command"):
    pass


class AnswerCommand(_Command, frozen=True, kw_only=True, tag="answer"):
    """The model writes; its text is the outcome. `prompt` stands behind all that was said and called before."""

    prompt: Words | None = None
    max_tokens: AtLeastOne | None = None


class CallCommand(_Command, frozen=True, kw_only=True, tag="call"):
    """A tool is called, once it is approved if the policy says so; its result is the outcome."""

    name: str
    arguments: dict[str, Any] = {}


class ApproveCommand(_Command, frozen=True, kw_only=True, tag="approve"):
    """Somebody of the desk `by` decides, or the user; the decision is the outcome. Nothing is called."""

    name: str
    by: Annotated[str, Meta(pattern=_DESK)]
    arguments: dict[str, Any] = {}
    within_s: Seconds = 86_400.0


class ResultCommand(_Command, frozen=True, kw_only=True, tag="result"):
    """The program has done something itself; the value is the outcome."""

    value: Any = None


class AskCommand(_Command, frozen=True, kw_only=True, tag="ask"):
    """An agent is asked; its text is the outcome."""

    agent: str
    prompt: Words
    within_s: Seconds = 600.0


class SleepCommand(_Command, frozen=True, kw_only=True, tag="sleep"):
    seconds: Seconds


class SayCommand(_Command, frozen=True, kw_only=True, tag="say"):
    """The text is a part of the answer."""

    text: Words


class EndCommand(_Command, frozen=True, kw_only=True, tag="end"):
    """The answer is complete."""


class FailCommand(_Command, frozen=True, kw_only=True, tag="fail"):
    """The program cannot go on; the message is for its operator."""

    message: Annotated[str, Meta(max_length=1000)] = ""


Command = (
    AnswerCommand
    | CallCommand
    | ApproveCommand
    | ResultCommand
    | AskCommand
    | SleepCommand
    | SayCommand
    | EndCommand
    | FailCommand
)


class CommandError(ValueError):
    """What a program has written is no command; one line that quotes nothing of it."""


def command_of(content: str) -> Command:
    """Raises `CommandError`."""
    try:
        command: Command = msgspec.json.decode(content.encode(errors="replace"), type=Command)
    except (msgspec.DecodeError, RecursionError) as error:
        why = _QUOTED.sub("…", str(error)) if not isinstance(error, msgspec.ValidationError) else str(error)
        raise CommandError(f"its command cannot be read: {why}") from None
    name = command.name if isinstance(command, CallCommand | ApproveCommand) else ""
    name = command.agent if isinstance(command, AskCommand) else name
    if name and not is_tool_name(name):
        raise CommandError("its command names no tool or agent: a name is 1-64 of A-Z a-z 0-9 _ . -")
    return command
