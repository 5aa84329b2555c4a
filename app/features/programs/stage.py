"""The answer of an agent that is a program (`program = true` in `[agents.NAME]`).

Instead of a model, a program is asked what comes next: by a record on `tool-calls` with the name `agent:NAME`, the id
of the call, and as `arguments` the request and all steps so far. The result's content is a command (commands.py). It is
carried out, its outcome goes to the next step, and the program is asked again, until it ends the answer. Calls,
approvals, agents and sleep are those of tools over Kafka (app/features/tool_rounds.py), so each outcome is there once,
whichever process dies, and an answer of the model goes on at its next token.

All that is known of a program is its commands. So its function may run anywhere, and from its beginning each time: it
gets the recorded outcomes again. A program that is another one meanwhile says so by `fail`. What ends an answer because
of its program is a dead letter of the request, and the answer is `partial`: what readers have stays.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from app.answering.dialogue import Dialogue
from app.answering.kept import Kept
from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Round, Stage
from app.delivery.dead_letters import letter_of
from app.features.agents.asking import Asking, ask
from app.features.programs.commands import (
    AnswerCommand,
    ApproveCommand,
    AskCommand,
    CallCommand,
    Command,
    CommandError,
    EndCommand,
    FailCommand,
    SayCommand,
    SleepCommand,
    command_of,
)
from app.features.programs.history import asked_by, content_of, count, is_step, shown, step_name, steps, text_behind
from app.features.tool_rounds import Calling, ToolsOverKafka
from app.features.waits.approvals import TIMED_OUT
from app.policy.agents import AgentRules, is_of_program
from app.policy.file import Policy
from app.policy.tools import ToolRules
from app.process.off_loop import INLINE
from app.wire.error import ErrorCode, WireError, shortened
from app.wire.event import Plan
from app.wire.record_size import MAX_RECORD_BYTES
from app.wire.request import Message, Request, Role
from models.interface.chat import ModelCall
from models.interface.generation import Delta, End, FinishReason, Usage
from tables.tool_calls import BREAK, Approval, AskedAgent, ToolRound, ToolRounds

log = logging.getLogger(__name__)

MOST_STEPS = 256
_SLEEP = "sleep"
_ENVELOPE = 4096
"""Bytes of a record of `tool-calls` beside its arguments."""


class Programs(Feature):
    def __init__(self, tools: ToolsOverKafka, policy: Policy) -> None:
        self.tools = tools
        self.use(policy)

    @property
    def is_on(self) -> bool:
        return False

    def use(self, policy: Policy) -> None:
        self._agents = policy.agents

    def stage(self, run: Run) -> Stage | None:
        return Programmed(run, self) if is_of_program(run.accepted.request) else None

    def step_ms(self, name: str) -> int:
        """How long the program has for a step."""
        return self._agents.get(name, AgentRules()).step_ms


class Programmed(Calling):
    """`_command`: the one that is carried out; None while the program is asked."""

    def __init__(self, run: Run, programs: Programs) -> None:
        super().__init__(run, programs.tools)
        self._programs = programs
        self._name = run.accepted.request.agent or ""
        self._command: Command | None = None

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        fork = self.run.accepted.request.fork
        if fork is not None and fork.index is not None:
            message = f"from.index: not with the agent {self._name}, which is a program"
            raise RequestRefused(ErrorCode.INVALID_REQUEST, message)
        return await super().decide(plan, then)

    async def round(self, then: Round) -> Ending:
        return await super().round(partial(self._go_on, then))

    async def _add_words(self) -> None:
        """A program reads no words of others: they are requests of their own."""

    async def _go_on(self, then: Round) -> Ending:
        """Carry out the command of the last round, or ask for the next one."""
        answer = self.run.answer
        last = answer.rounds.rounds[-1] if answer.rounds.rounds else None
        nothing = Usage(0, answer.tokens_of_round)
        self._command = None if last is None or not is_step(last) else self._read(last)
        match self._command:
            case AnswerCommand():
                return await self._write(then)
            case EndCommand():
                return End(answer.index, FinishReason.STOP, nothing)
            case FailCommand():
                raise self._failed()
            case SayCommand(text=text):
                if not answer.tokens_of_round:  # one event has all of it
                    await self._say(text)
        call = _call_of(self._command)
        return (
            self._ask_program() if call is None else End(answer.index, FinishReason.TOOL_CALLS, nothing, calls=(call,))
        )

    def _read(self, last: ToolRound) -> Command:
        try:
            return command_of(content_of(last) or "")
        except CommandError:
            raise self._failed() from None

    def _ask_program(self, usage: Usage | None = None) -> End:
        """The end of a round, which is the beginning of the next step."""
        answer = self.run.answer
        if count(answer.rounds) >= MOST_STEPS:
            raise self._failed()
        self._command, call = None, ModelCall(step_name(self._name), "{}")
        usage = usage or Usage(0, answer.tokens_of_round)
        return End(answer.index, FinishReason.TOOL_CALLS, usage, calls=(call,))

    def _failed(self) -> Over:
        log.warning("request %s ends: %s", self.run.key, failure_of(self.run.answer.rounds, self._name))
        return Over(self.run.ended_by(FinishReason.PARTIAL))

    async def _write(self, then: Round) -> Ending:
        """Let the model write; what it holds back at its end is told before the program is asked."""
        answer, former = self.run.answer, self.run.accepted.former.answer
        told = None if former is None or not former.segments else former.segments[-1]
        if told is not None and told.text and not told.tokens and told.index == answer.index:
            return self._ask_program()  # a former owner has told it
        end = await then()
        if not isinstance(end, End) or end.reason not in {FinishReason.STOP, FinishReason.LENGTH}:
            return end
        if end.text or end.reasoning:
            await self._tell(Delta(len(answer.generated), (), end.text, reasoning=end.reasoning))
        return self._ask_program(end.usage)

    async def _say(self, text: str) -> None:
        run, answer = self.run, self.run.answer
        model = run.model() or run.models.default
        ids_of = partial(model.prompts.ids_of, text)
        ids = (ids_of() if len(text) <= INLINE else await asyncio.to_thread(ids_of)) or (0,)  # one at least: it is said
        answer.write_as(model)
        answer.prompt_digest, answer.tells_reasoning = None, False
        await self._tell(Delta(0, tuple(ids), text))

    async def _tell(self, delta: Delta) -> None:
        if not self.run.answer.has_room_for(delta):
            raise Over(self.run.ended_by(FinishReason.LENGTH))
        await self.run.answer.write(delta)

    async def see(self, dialogue: Dialogue) -> Dialogue:
        """A model reads what was said and called, and the words that the program has for it."""
        command, rounds = self._command, dialogue.rounds
        if not isinstance(command, AnswerCommand):
            return dataclasses.replace(dialogue, rounds=shown(rounds))
        request, most = dialogue.request, command.max_tokens or dialogue.request.max_tokens
        request = replace(request, max_tokens=rounds.end + (most or self._settings.max_tokens))
        if command.prompt is not None and not (shown(rounds).steps or text_behind(rounds)):
            request = _with_words(request, command.prompt)
        return dataclasses.replace(dialogue, request=request, rounds=asked_by(rounds, command))

    def _asking(self, calls: Sequence[ModelCall], now: int) -> Asking:
        command, call = self._command, calls[0]
        if isinstance(command, SleepCommand):
            return Asking((AskedAgent(call.id, "", now + round(command.seconds * 1000)),))
        if isinstance(command, AskCommand):
            rules = {call.name: ToolRules(ask=command.agent, within_s=command.within_s)}
            return ask(self.run, self.run.answer.rounds, calls, rules, now)
        return super()._asking(calls, now) if isinstance(command, CallCommand) else Asking()

    def _approvals(self, calls: Sequence[ModelCall], now: int) -> tuple[Approval, ...]:
        command, call = self._command, calls[0]
        if not isinstance(command, CallCommand | ApproveCommand):
            return ()
        tool = self._tools.rules.get(call.name, ToolRules())
        if isinstance(command, CallCommand):
            asked = super()._approvals(calls, now)
        else:
            asked = (Approval(call.id, command.by, now + round(command.within_s * 1000), time_ms=0),)
        return tuple(replace(one, parameters=tool.parameters, description=tool.description or "") for one in asked)

    def _time_ms(self, calls: Sequence[ModelCall]) -> int:
        return self._programs.step_ms(self._name) if self._command is None else super()._time_ms(calls)

    def _sent(self, call: ModelCall, rounds: ToolRounds) -> ModelCall:
        """The record that asks the program has the request and all steps; the row has neither twice."""
        if self._command is not None:
            return call
        asked = {"request": _told(self.run.accepted.request, self._name), "steps": steps(rounds)}
        arguments = msgspec.json.encode(asked).decode()
        if len(msgspec.json.encode(arguments)) > MAX_RECORD_BYTES - _ENVELOPE:
            log.warning("request %s ends: the steps of its program are larger than a record", self.run.key)
            raise Over(self.run.ended_by(FinishReason.LENGTH))
        return dataclasses.replace(call, arguments=arguments)

    def leave(self, kept: Kept) -> Kept:
        kept = super().leave(kept)
        run, rounds = self.run, self.run.answer.rounds
        if kept.row is not None and (said := text_behind(rounds)):
            text = BREAK.join(one for one in (said, kept.row.answer) if one)
            kept = dataclasses.replace(kept, row=replace(kept.row, answer=text))
        end = run.answer.end or run.accepted.former.end
        failure = (
            None if end is None or end.finish_reason is not FinishReason.PARTIAL else failure_of(rounds, self._name)
        )
        if failure is None:
            return kept
        error = WireError(ErrorCode.INVALID_REQUEST, failure, request_id=run.key[1])
        return kept.with_output(letter_of(run.accepted.record, error, run.settings))


def failure_of(rounds: ToolRounds, name: str) -> str | None:
    """Why the program ends the answer before its end; None if it does not."""
    last, number = (rounds.rounds[-1] if rounds.rounds else None), count(rounds)
    if last is None or last.missing:
        return None
    if is_step(last) and (content := content_of(last)) == TIMED_OUT:
        return f"agent {name}: no program has answered in time, in step {number}"
    if is_step(last) and content is not None:
        try:
            command = command_of(content)
        except CommandError as error:
            why = "its command is too large, or an error" if content.startswith("error:") else error
            return shortened(f"agent {name}, step {number}: {why}")
        if isinstance(command, FailCommand):
            return shortened(f"agent {name}, step {number}: {command.message or 'the program has failed'}")
        if isinstance(command, EndCommand):
            return None
    return f"agent {name}: {MOST_STEPS} steps are over" if number >= MOST_STEPS else None


def _call_of(command: Command | None) -> ModelCall | None:
    """The call by which the command is carried out; None if it needs none."""
    match command:
        case CallCommand(name=name, arguments=arguments) | ApproveCommand(name=name, arguments=arguments):
            return ModelCall(name, msgspec.json.encode(arguments).decode())
        case AskCommand(agent=agent, prompt=prompt):
            return ModelCall(agent, msgspec.json.encode({"question": prompt}).decode())
        case SleepCommand():
            return ModelCall(_SLEEP, "{}")
    return None


def _told(request: Request, name: str) -> dict[str, Any]:
    """What a program reads of the request. Instructions are the agent's own."""
    messages = [one for one in request.messages or () if one.role is not Role.SYSTEM]
    return {
        "request_id": request.request_id,
        "user_id": request.user_id,
        "conversation_id": request.conversation_id,
        "tenant": request.tenant,
        "agent": name,
        "prompt": request.question,
        "messages": messages if len(messages) > 1 else [],
    }


def _with_words(request: Request, words: str) -> Request:
    """The request with these behind what the user says."""
    if request.messages is None:
        return replace(request, prompt=f"{request.prompt or ''}{BREAK}{words}")
    *before, last = request.messages
    if last.role is not Role.USER:
        return replace(request, messages=(*request.messages, Message(Role.USER, words)))
    return replace(request, messages=(*before, replace(last, content=f"{last.text}{BREAK}{words}")))
