"""The steps of a program in the rounds of an answer.

A step is one or two rounds (tables/tool_calls.py). The first is a call of `agent:NAME`, whose result is the program's
command. What the command does follows: tokens, which are the text of the next round, or a round with its own call.
Models, the conversation and `turns` know nothing of the calls of programs: `shown` are the rounds as a model's.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from app.features.programs.commands import AnswerCommand, Command, CommandError, SayCommand, command_of
from tables.tool_calls import BREAK, AddedWords, ToolRound, ToolRounds

_PREFIX = "agent:"


def step_name(agent: str) -> str:
    """The name of the call by which the program of an agent is asked. No tool of a model has a colon in its name."""
    return f"{_PREFIX}{agent}"


def is_step_name(name: str) -> bool:
    return name.startswith(_PREFIX)


def is_step(one: ToolRound) -> bool:
    """Whether the round asks a program for its command."""
    return bool(one.calls) and is_step_name(one.calls[0].name)


def is_shown(one: ToolRound) -> bool:
    """Whether readers learn of the calls of the round: not if a program is asked, or the answer only waits."""
    return not is_step(one) and not any(not agent.agent for agent in one.agents)


def content_of(one: ToolRound) -> str | None:
    """What the program has answered."""
    return next((outcome.content for outcome in one.outcomes), None)


def read_command(one: ToolRound) -> Command | None:
    """None if there is none yet, or none that can be read."""
    try:
        return command_of(content_of(one) or "")
    except CommandError:
        return None


def count(rounds: ToolRounds) -> int:
    """How often the program was asked."""
    return sum(map(is_step, rounds.rounds))


def steps(rounds: ToolRounds) -> list[dict[str, Any]]:
    """The steps that are over, as a program reads them."""
    found: list[dict[str, Any]] = []
    for one, then in zip(rounds.rounds, rounds.rounds[1:], strict=False):
        if is_step(one):
            command = json.loads(content_of(one) or "{}")
            outcome = command.pop("value", None) if command.get("command") == "result" else _outcome(command, then)
            found.append({"n": len(found) + 1, "command": command, "outcome": outcome})
    return found


def _outcome(command: dict[str, Any], then: ToolRound) -> Any:
    if is_step(then):
        return then.text if command.get("command") == "answer" else None
    content = content_of(then) or ""
    if content.startswith("error:"):
        return content
    if command.get("command") == "approve":
        return json.loads(content)
    return None if command.get("command") == "sleep" else content


def shown(rounds: ToolRounds) -> ToolRounds:
    """The rounds as a model's: calls that are shown, each with what was said before it. Where rounds end stays."""
    if not rounds.rounds or not is_step(rounds.rounds[0]):
        return rounds
    made, said = list[ToolRound](), list[str]()
    for one in rounds.rounds:
        said += [one.text] if one.text else []
        if is_shown(one):
            made.append(replace(one, text=BREAK.join(said)))
            said.clear()
        else:
            made.append(replace(one, text="", reasoning="", calls=(), outcomes=(), approvals=(), agents=()))
    return replace(rounds, rounds=tuple(made))


def text_behind(rounds: ToolRounds) -> str:
    """What was said behind the last call that is shown; nothing if no program has answered."""
    if not rounds.rounds or not is_step(rounds.rounds[0]):
        return ""
    said = list[str]()
    for one in rounds.rounds:
        said += [one.text] if one.text else []
        if is_shown(one):
            said.clear()
    return BREAK.join(said)


def asked_by(rounds: ToolRounds, command: AnswerCommand) -> ToolRounds:
    """The rounds as the model reads them that is to write now."""
    prompt, said, made = command.prompt, text_behind(rounds), shown(rounds)
    if prompt is None or not (said or made.steps):
        return made
    last = replace(made.rounds[-1], text=said, words=(AddedWords("", prompt),))
    return replace(made, rounds=(*made.rounds[:-1], last))


def is_text(command: Command | None) -> bool:
    """Whether the command writes text."""
    return isinstance(command, AnswerCommand | SayCommand)
