"""What a function does for an answer: one step after another, each with its outcome."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

T = TypeVar("T")
Command = dict[str, Any]

_ERROR = "error:"
_TEXTS = {"answer", "result"}
"""Commands whose outcomes are values: one that begins like an error is none."""


class StepError(Exception):
    """The step has failed: a tool's error, a rejected call, an agent that did not answer. The text says which."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """The request that is answered. `messages` are those of a request that brings more than its prompt."""

    request_id: str
    user_id: str
    conversation_id: str
    prompt: str
    agent: str
    tenant: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody has decided. `arguments` are those that count; `by` is who, nobody if the time was over."""

    decision: Literal["approved", "edited", "rejected", "expired"]
    arguments: Mapping[str, Any]
    by: str = ""
    reason: str = ""

    @property
    def is_approved(self) -> bool:
        return self.decision in {"approved", "edited"}


@dataclass(frozen=True, slots=True)
class PastStep:
    """A step that is over, as the record of the call has it."""

    command: Command
    outcome: Any


class ChangedError(Exception):
    """The function makes another step than the one that is recorded; the message quotes no text of either."""


@dataclass(eq=False)
class Steps:
    """The steps of one run of a function: those that it has made, and the one whose outcome it waits for."""

    past: list[PastStep]
    made: list[Command] = field(default_factory=list)
    waiting: asyncio.Future[Any] | None = None
    asked: asyncio.Future[Command] | None = None
    changed: ChangedError | None = None

    async def outcome(self, command: Command) -> Any:
        if self.changed is not None:
            raise self.changed
        if self.waiting is not None:
            raise RuntimeError("steps are made one after another: await each before the next")
        self.made.append(command)
        if len(self.made) <= len(self.past):
            then = self.past[len(self.made) - 1]
            try:
                check_same(len(self.made), then.command, command)
            except ChangedError as error:
                self.changed = error  # whatever the function makes of it
                raise
            return then.outcome
        self.waiting = asyncio.get_running_loop().create_future()
        assert self.asked is not None
        self.asked.set_result(command)
        return await self.waiting

    def go_on(self, past: list[PastStep]) -> None:
        """The outcome of the step that waits is there."""
        assert self.waiting is not None
        self.past, waiting, self.waiting = past, self.waiting, None
        waiting.set_result(past[-1].outcome)


def check_same(number: int, recorded: Command, made: Command) -> None:
    """Raise `ChangedError` unless the step is the recorded one."""
    was, now = (_known(one) for one in (recorded, made))
    if was == now:
        return
    names = [f"{one.get('command')} {one.get('name') or one.get('agent') or ''}".strip() for one in (recorded, made)]
    if names[0] != names[1]:
        raise ChangedError(f"step {number} was {names[0]}, and is {names[1]} now: the program has changed")
    others = sorted(key for key in {*was, *now} if was.get(key) != now.get(key))
    raise ChangedError(f"step {number}, {names[0]}, has another {', '.join(others)} now: the program has changed")


def _known(command: Command) -> Command:
    """A command as its record has it: JSON, and of a result not its value, which is the outcome."""
    known = cast("Command", json.loads(json.dumps(command)))
    if known.get("command") == "result":
        known.pop("value", None)
    return known


class Step:
    """Each method is a step of the answer. It raises `StepError` if the step fails."""

    def __init__(self, request: AgentRequest, steps: Steps) -> None:
        self._request, self._steps = request, steps

    @property
    def key(self) -> str:
        """Names the next step, the same however often it runs: an idempotency key for what it does to the world."""
        return f"{self._request.user_id}/{self._request.request_id}/{len(self._steps.made) + 1}"

    async def answer(self, prompt: str | None = None, *, max_tokens: int | None = None) -> str:
        """The model writes; returns its text. It has read the conversation, what the function has said and called, and
        at last the `prompt`.
        """
        text: str = await self._made("answer", prompt=prompt, max_tokens=max_tokens)
        return text

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> str:
        """Call a tool, once it is approved if the policy says so; returns its result."""
        text: str = await self._made("call", name=name, arguments=dict(arguments or {}))
        return text

    async def approve(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, by: str, within_s: float = 86_400.0
    ) -> Decision:
        """Let somebody of the desk `by` decide, or with `user` the user. Nothing is called."""
        given = dict(arguments or {})
        told = await self._made("approve", name=name, arguments=given, by=by, within_s=within_s)
        decided = told["decision"], told.get("arguments", given), told.get("by", ""), told.get("reason", "")
        return Decision(*decided)

    async def ask(self, agent: str, prompt: str, *, within_s: float = 600.0) -> str:
        """Ask an agent of the policy; returns its text."""
        text: str = await self._made("ask", agent=agent, prompt=prompt, within_s=within_s)
        return text

    async def sleep(self, seconds: float) -> None:
        """Go on later, up to 30 days."""
        await self._made("sleep", seconds=seconds)

    async def say(self, text: str) -> None:
        """Make the text a part of the answer."""
        await self._made("say", text=text)

    async def run(self, function: Callable[[], T | Awaitable[T]]) -> T:
        """Run the function in a step and record its result, which has to be JSON. It runs at least once, and not again
        once the result is recorded: use `step.key` for what it does to the world.
        """
        number = len(self._steps.made)
        if number < len(self._steps.past):
            return cast("T", await self._steps.outcome({"command": "result"}))
        result = function()
        value = await result if inspect.isawaitable(result) else result
        return cast("T", await self._steps.outcome({"command": "result", "value": json.loads(json.dumps(value))}))

    async def _made(self, kind: str, **fields: Any) -> Any:
        command = {"command": kind, **{name: value for name, value in fields.items() if value is not None}}
        outcome = await self._steps.outcome(command)
        if kind not in _TEXTS and isinstance(outcome, str) and outcome.startswith(_ERROR):
            raise StepError(outcome.removeprefix(_ERROR).strip())
        return outcome
