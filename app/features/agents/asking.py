"""Calls that are requests of an agent (`ask` in `[tools.NAME]`): an answer asks an agent, sleeps, and goes on.

1. Ask: the transaction that commits the round puts the agent's request on `requests`, in place of a record on
   `tool-calls`. Its id is that of the call, its user and its tenant are those of the answer, so it lies in the same
   partition; its conversation is its own, and nothing of it is remembered. The header `asked-by` names who asks.
2. The agent answers as any request is answered: its quota, its audit, its tokens, its calls, its sleep.
3. Its end is the result of the call, in the transaction that ends it: the text, or an error that the model reads. With
   the last result the answer wakes, in the same transaction (asked.py).

An agent whose answer nobody waits for any more ends as cancelled: what ends an answer stops those whom it has asked,
whether they run or sleep, and one that is read later finds at its turn that no call waits for it. The time of the call
is its deadline. An error that no stage sees (a record that Kafka refuses) leaves no result: the time of the call is the
end of such a wait.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from app.answering.kept import Kept
from app.answering.run import Run
from app.delivery.accepted import RequestKey
from app.delivery.record import REQUESTS, HeaderList, Outgoing, outgoing
from app.features.answer_trace import AnswerTrace
from app.features.waits.wake import Woken, stop
from app.policy.agents import MOST_DEEP
from app.policy.tools import ToolRules
from app.wire.error import WireError
from app.wire.request import Request
from app.wire.validation import validate_made
from models.interface.chat import ModelCall
from models.interface.generation import FinishReason
from tables.asleep import Sleeper
from tables.tool_calls import AskedAgent, ToolOutcome, ToolRounds

ASKED_BY = "asked-by"
"""The header of an agent's request: how deep it is, a slash, and the request that asks."""

MOST_AT_ONCE = 8
MOST_OF_ANSWER = 32
TOO_DEEP = f"error: agents that are asked may ask others, {MOST_DEEP} deep at most"
TOO_MANY = f"error: an answer may ask {MOST_AT_ONCE} agents at once and {MOST_OF_ANSWER} in all"


class AskingRequest(NamedTuple):
    """Who has asked: the request, and how many agents have asked one another to get there, this one counted."""

    request_id: str
    depth: int


def asker_of(headers: HeaderList) -> AskingRequest | None:
    value = next((value for name, value in headers if name == ASKED_BY), None)
    depth, _, request_id = (value or b"").decode(errors="replace").partition("/")
    return AskingRequest(request_id, int(depth)) if len(depth) == 1 and depth in "123456789" and request_id else None


class Asking(NamedTuple):
    """A round's calls of agents: the agents that are asked, their records, and errors as the results of other calls."""

    agents: tuple[AskedAgent, ...] = ()
    outputs: tuple[Outgoing, ...] = ()
    outcomes: tuple[ToolOutcome, ...] = ()


def ask(run: Run, before: ToolRounds, calls: Sequence[ModelCall], rules: dict[str, ToolRules], now: int) -> Asking:
    """Ask the agents of those calls whose tools have one."""
    agents: list[AskedAgent] = []
    outputs: list[Outgoing] = []
    outcomes: list[ToolOutcome] = []
    asker = asker_of(run.accepted.record.headers)
    depth, asked = 1 if asker is None else asker.depth + 1, len(before.agents)
    for call in calls:
        if (rule := rules.get(call.name)) is None or rule.ask is None:
            continue
        if depth > MOST_DEEP:
            outcomes.append(ToolOutcome(call.id, TOO_DEEP))
        elif len(agents) >= MOST_AT_ONCE or asked + len(agents) >= MOST_OF_ANSWER:
            outcomes.append(ToolOutcome(call.id, TOO_MANY))
        else:
            agent = AskedAgent(call.id, rule.ask, now + rule.answer_ms)
            try:
                outputs.append(_request(run, call, agent, depth, now))
                agents.append(agent)
            except WireError as error:
                outcomes.append(ToolOutcome(call.id, f"error: the agent cannot be asked: {error.message}"))
    return Asking(tuple(agents), tuple(outputs), tuple(outcomes))


def _request(run: Run, call: ModelCall, agent: AskedAgent, depth: int, now: int) -> Outgoing:
    """The record of the agent's request; raises `WireError` if it would be refused."""
    request, record, settings = run.accepted.request, run.accepted.record, run.settings
    left_ms = agent.until - now
    if request.deadline_ms is not None:
        left_ms = min(left_ms, min(record.timestamp, run.accepted.at) + request.deadline_ms - now)
    made = Request(
        request_id=call.id,
        user_id=request.user_id,
        conversation_id=call.id,
        agent=agent.agent,
        prompt=_question(call),
        max_tokens=request.max_tokens,
        priority=request.priority,
        deadline_ms=max(0, left_ms),
        tenant=request.tenant,
        store=False,
    )
    validate_made(made, max_prompt_bytes=settings.max_prompt_bytes)
    trace = AnswerTrace.of_accepted(run.accepted).headers_of_answer(settings, run.key)
    headers = (*trace, (ASKED_BY, f"{depth}/{request.request_id}".encode()))
    return outgoing(settings, REQUESTS, request.user_id.encode(), made, headers)


def _question(call: ModelCall) -> str:
    """What the agent is asked: the only text among the arguments, or all of them as JSON."""
    try:
        values = [*json.loads(call.arguments).values()]
    except (ValueError, AttributeError):
        values = []
    return values[0] if len(values) == 1 and isinstance(values[0], str) and values[0] else call.arguments


def stop_asked(run: Run, kept: Kept, rounds: ToolRounds) -> tuple[Kept, list[tuple[RequestKey, Sleeper | None]]]:
    """The answer ends: stop the agents for whom it waits. Returns those that slept as well, as they are decided now."""
    ownership, decided = run.ownership, []
    for agent in rounds.waiting_agents:
        key = (run.key[0], agent.call_id)
        if (inflight := ownership.inflight_requests.get(key)) is not None:
            inflight.stop.now(FinishReason.CANCELLED)
        elif (woken := stop(run.partition, key)) is not None:
            kept = with_woken(kept, woken)
            decided.append((key, ownership.sleepers.under_way[key]))
    return kept, decided


def with_woken(kept: Kept, woken: Woken) -> Kept:
    """A record that Kafka rejects beside it does not undo a wake: its rows are written."""
    for change in woken.changes:
        kept = kept.with_change(change)
    return kept.with_outputs(woken.outputs, instead=woken.outputs)
