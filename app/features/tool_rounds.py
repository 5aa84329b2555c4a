"""Calls of tools over Kafka (`tool_mode` `kafka`): an answer asks, waits, and goes on.

1. Ask: one transaction writes the calls to `tool-calls` and the round to the table `calls`. All token events of the
   round are delivered before, so the log and the row agree on where the round ended.
2. Wait until each call has a result or its time is over. Meanwhile the request holds no slot that others could use. The
   agent on `tool-results` adds the results; the timeout adds what is missing.
3. Go on: the next round's prompt ends in the calls and their results, and its tokens continue the answer's index.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from textwrap import shorten
from weakref import WeakKeyDictionary

import msgspec

from app.answering.dialogue import question_of
from app.answering.kept import Kept
from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Round, Stage
from app.delivery.accepted import Former, RequestKey
from app.delivery.commits.commit import Commit
from app.delivery.inflight import Outcome
from app.delivery.ownership import Ownership
from app.delivery.record import TOOL_RESULTS as TOOL_RESULTS_TOPIC
from app.features.agents.asking import Asking, ask, stop_asked
from app.features.answer_steps import tell_calls, tell_round
from app.features.answer_trace import AnswerTrace
from app.features.open_calls import OpenCalls
from app.features.programs.history import is_shown, shown
from app.features.steering import Steering
from app.features.waits.approvals import Decided, asked, call_record, not_asked, over, timed_out
from app.features.waits.sleep import asleep, go_on, kept_at_end, may_sleep
from app.features.waits.states import waits_of
from app.policy.agents import is_of_program
from app.policy.file import NO_POLICY, Policy
from app.policy.tools import BY_USER
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.event import TOOL_CALLS, TOOL_RESULTS, WAITING, Plan
from app.wire.tools import MAX_OPEN_MS, TOOL_TIMEOUT_MS, ToolCall, ToolMode
from models.interface.chat import ModelCall
from models.interface.generation import End, FinishReason
from tables import records
from tables.asleep import Sleeper
from tables.tool_calls import Approval, ToolRound, ToolRounds, fits

log = logging.getLogger(__name__)

_READ_S = 10.0
CANCELLED = "error: the answer was stopped before the tool answered"
# Answers of one user that wait in one partition, as a multiple of those that may run.
_MOST_WAITING = 8
_MOST_SHOWN = 300
"""Characters of the description and of the question that a desk reads."""
_SHOWN = 1000
"""Characters of a result in a notice: it is for display, and the table has the whole."""


class ToolsOverKafka(Feature):
    """`waits`: when answers that wait fall asleep; None if they do not. `steering`: what goes into answers that run."""

    def __init__(self, settings: Settings, policy: Policy = NO_POLICY, steering: Steering | None = None) -> None:
        self.settings, self.steering = settings, steering or Steering()
        self.use(policy)
        self._calls: WeakKeyDictionary[Ownership, OpenCalls] = WeakKeyDictionary()

    @property
    def is_on(self) -> bool:
        return False

    def use(self, policy: Policy) -> None:
        self.waits = policy.waits
        self.rules = policy.tools
        self.approve = {name: rules.approve for name, rules in policy.tools.items() if rules.approve is not None}
        self.asks = {name: rules for name, rules in policy.tools.items() if rules.ask and policy.waits is not None}

    def calls_of(self, ownership: Ownership) -> OpenCalls:
        """The calls of the partition's answers that wait under this ownership."""
        if (calls := self._calls.get(ownership)) is None:
            calls = self._calls[ownership] = OpenCalls(ownership.store, ownership.sleepers)
        return calls

    def known_calls(self, ownership: Ownership) -> OpenCalls | None:
        """Without beginning to keep them; from any thread."""
        return self._calls.get(ownership)

    def stage(self, run: Run) -> Stage | None:
        """The answer of a program has its own (app/features/programs)."""
        request = run.accepted.request
        return Calling(run, self) if request.tool_mode is ToolMode.KAFKA and not is_of_program(request) else None


class Calling(Stage):
    """`_made`: the rounds that are committed. `answer.rounds` are those of them that precede the tokens written so far;
    all, unless `tokens` has lost records.
    """

    def __init__(self, run: Run, tools: ToolsOverKafka) -> None:
        super().__init__(run)
        self._settings, self._tools = tools.settings, tools
        self._calls = tools.calls_of(run.partition.ownership)
        request = run.accepted.request
        made = ToolRounds(run.accepted.at, conversation_id=request.conversation_id, tenant=request.tenant)
        of_row = self._calls.committed if run.accepted.sleeper is None else self._calls.decided
        self._made = of_row(run.key) or made
        run.answer.continue_after(self._made)
        self._stopped: list[tuple[RequestKey, Sleeper | None]] = []

    def is_decided(self, former: Former) -> bool:
        return former.is_admitted

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        """Each answer that waits needs memory, so a user may not have too many of them."""
        most = _MOST_WAITING * self._settings.max_in_flight
        if self.run.partition.records.lent_by(self.run.accepted.record.key) >= most:
            message = (
                f"{most} answers of this user wait for the results of tools; try again when some of them have ended"
            )
            raise RequestRefused(ErrorCode.OVERLOADED, message)
        if self._timeout_ms() > MAX_OPEN_MS and self._tools.waits is None:
            message = f"tool_timeout_ms: at most {MAX_OPEN_MS} where the service's policy has no table [waits]"
            raise RequestRefused(ErrorCode.INVALID_REQUEST, message)
        return await then(plan)

    async def round(self, then: Round) -> Ending:
        answer = self.run.answer
        if self.run.accepted.is_waking:
            await go_on(self.run)
            if self._made.rounds and not self._made.missing:
                await self._tell_results()
        while True:
            if answer.rounds == self._made and self._made.missing:
                await self._wait()
            if self._made.rounds and answer.rounds == self._made and answer.index == self._made.end:
                await self._add_words()
            end = await then()
            if not isinstance(end, End) or end.reason is not FinishReason.TOOL_CALLS:
                return end
            if answer.rounds == self._made:
                await self._ask(end)
                continue
            # A round that `tokens` has lost is written again; its calls are made.
            passed = self._made.until(answer.index)
            if answer.text != passed.text:  # decided otherwise since, for example another model
                raise Over(End(answer.index, FinishReason.PARTIAL, end.usage))
            answer.continue_after(passed)

    async def _add_words(self) -> None:
        """Let later requests say something in between."""
        await self._tools.steering.add_words(self.run, self._calls)
        self._made = self._calls.decided(self.run.key) or self._made
        self.run.answer.continue_after(self._made)

    async def _ask(self, end: End) -> None:
        """Make the calls in which a round has ended."""
        run, answer, now = self.run, self.run.answer, self.run.partition.ownership.clock.now()
        calls = tuple(ModelCall(call.name, call.arguments, answer.call_id(at)) for at, call in enumerate(end.calls))
        asking = self._asking(calls, now)
        one = ToolRound(
            end=answer.index,
            text=answer.text_of_round,
            reasoning=answer.reasoning_of_round,
            calls=calls,
            usage=end.usage,
            asked_at=now,
            expires_at=now + self._time_ms(calls),
            outcomes=asking.outcomes,
            approvals=self._approvals(calls, now),
            agents=asking.agents,
        )
        rounds = answer.rounds.asked(one)
        if not fits(rounds, answer.beside_bytes):
            raise Over(End(answer.index, FinishReason.LENGTH, end.usage))
        await answer.delivered()
        change = self._calls.decide(run.key, rounds)
        trace = AnswerTrace.of_accepted(run.accepted)
        others = {call.id for call in one.asked} | {agent.call_id for agent in one.agents}
        made = [call for call in one.missing if call.id not in others]
        headers = partial(trace.headers_of_call, self._settings)
        outputs = tuple(
            call_record(self._settings, run.key, rounds, self._sent(call, rounds), now, headers(call.id))
            for call in made
        )
        outputs += asking.outputs
        await run.partition.commit(Commit(None, (change,), outputs, asked(run.key, rounds, now)), urgent=True)
        self._made = rounds
        answer.continue_after(rounds)
        run.inflight.attempts.end_beginning()
        if end.usage.prompt_tokens:
            tell_round(run, answer.version or "", now)
        if is_shown(one):
            shown_calls = [_shown_call(call) for call in one.calls]
            await answer.notice(TOOL_CALLS, _waits_for(one.calls), {"calls": shown_calls})
        if not one.missing:
            await self._tell_results()

    async def _wait(self) -> None:
        """Wait until each call of the last round has a result. Raises `Over` if the request is stopped."""
        run, clock = self.run, asyncio.get_running_loop().time
        sleeps_at = math.inf if self._tools.waits is None else clock() + self._tools.waits.park_after_s
        if self._tools.waits is not None and any(one.agent for one in self._made.waiting_agents):
            sleeps_at = clock()
        async with run.waiting():
            with (
                self._calls.waiting(run.key) as changed,
                run.inflight.stop.listening(lambda _reason: changed.set()),
            ):
                while run.inflight.stop.reason is None:
                    changed.clear()
                    self._made = self._calls.committed(run.key) or self._made
                    if not self._made.missing:
                        break
                    if (self._calls.decided(run.key) or self._made).asked_calls:
                        await self._fall_asleep()
                        continue
                    left_s = (self._expires_at() - run.partition.ownership.clock.now()) / 1000
                    if left_s <= 0:
                        await self._time_out()
                        continue
                    if clock() >= sleeps_at:
                        sleeps_at = math.inf
                        await self._fall_asleep()
                        continue
                    with suppress(TimeoutError):
                        async with asyncio.timeout(min(left_s, sleeps_at - clock())):
                            await changed.wait()
        run.answer.continue_after(self._made)
        run.check()
        await self._tell_results()

    def _asking(self, calls: Sequence[ModelCall], now: int) -> Asking:
        """Ask agents by those of the calls whose tools are agents."""
        rules = self._tools.asks
        return ask(self.run, self.run.answer.rounds, calls, rules, now) if rules else Asking()

    def _sent(self, call: ModelCall, rounds: ToolRounds) -> ModelCall:
        """A call of the last of these rounds as its record has it."""
        del rounds
        return call

    def _time_ms(self, calls: Sequence[ModelCall]) -> int:
        """How long these calls have."""
        del calls
        return self._timeout_ms()

    def _approvals(self, calls: Sequence[ModelCall], now: int) -> tuple[Approval, ...]:
        """For those of the calls that need one by the policy."""
        rules = self._tools.approve if self._tools.waits is not None else {}
        request = self.run.accepted.request
        tools = {tool.function.name: tool.function for tool in request.tools or ()} if rules else {}
        question = shorten(question_of(request, self.run.memory), _MOST_SHOWN, placeholder="…") if rules else ""
        return tuple(
            Approval(
                call_id=call.id,
                by=rule.by,
                until=now + round(rule.within_s * 1000),
                time_ms=self._timeout_ms(),
                is_made_at_last=rule.otherwise == "approved",
                parameters=None if tool is None else tool.parameters,
                description="" if tool is None else shorten(tool.description or "", _MOST_SHOWN, placeholder="…"),
                question=question if rule.shows_question and rule.by != BY_USER else "",
            )
            for call in calls
            if (rule := rules.get(call.name)) is not None
            for tool in [tools.get(call.name)]
        )

    def _expires_at(self) -> int:
        """When the calls of the last round time out while the answer does not sleep."""
        return min(self._made.due_at, self._latest)

    @property
    def _latest(self) -> int:
        return self._made.rounds[-1].asked_at + MAX_OPEN_MS

    async def _fall_asleep(self) -> None:
        """Raise `Asleep` unless the answer has to stay open. What decides that is read in the step that raises it."""
        run, rules = self.run, self._tools.waits
        if rules is None or not may_sleep(run, self._calls, rules):
            await self._ask_nobody()
            return
        waits = waits_of(self._made)
        for wait in waits:
            await run.answer.notice(WAITING, f"the answer waits for {wait.name}", wait.details)
        await run.answer.delivered()
        rounds = self._calls.decided(run.key)
        if rounds is None or not rounds.missing:
            return
        if may_sleep(run, self._calls, rules) and (slept := asleep(run, self._calls, rounds)) is not None:
            raise slept
        await self._ask_nobody()

    async def _ask_nobody(self) -> None:
        """Give up the approvals: an answer that stays open is on no list, so no desk would decide."""
        run = self.run
        rounds = self._calls.decided(run.key) or self._made
        if rounds.asked_calls and run.inflight.stop.reason is None:
            await self._decide(not_asked(run.key, rounds, run.ownership.clock.now()))

    async def _decide(self, decided: Decided) -> None:
        change = self._calls.decide(self.run.key, decided.rounds)
        await self.run.partition.commit(Commit(None, (change,), decided.outputs, decided.audit), urgent=True)

    async def _tell_results(self) -> None:
        last, answer, timeline = self._made.rounds[-1], self.run.answer, self.run.inflight.timeline
        timeline.round = self.run.accepted.time_of(self.run.ownership.clock.now()) * 1_000_000
        timeline.batched = timeline.admitted = None
        if is_shown(last):
            results = [{"tool_call_id": one.call_id, "content": one.content[:_SHOWN]} for one in last.outcomes]
            await answer.notice(TOOL_RESULTS, "the answer goes on with the results of its calls", {"results": results})

    async def _time_out(self) -> None:
        """Decide that the missing results come too late. Those that arrived while no worker read them are not, unless
        they cannot be read now.
        """
        run = self.run
        try:
            async with asyncio.timeout(_READ_S):
                await run.unless_stopped(self._calls.read_to_end())
        except TimeoutError:
            at = run.partition.context.topic_partition(TOOL_RESULTS_TOPIC)
            log.warning("%s[%s] cannot be read: calls of request %s time out", *at, run.key)
        rounds, now = self._calls.decided(run.key) or self._made, run.ownership.clock.now()
        if rounds.missing:
            late = timed_out(rounds, now, self._latest)
            await self._decide(Decided(late))
            tell_calls(run.partition, run.key, rounds, late, now)

    def _timeout_ms(self) -> int:
        return self.run.accepted.request.tool_timeout_ms or TOOL_TIMEOUT_MS

    def leave(self, kept: Kept) -> Kept:
        """The calls are part of the turn, and their row goes. Each call has a result, as templates expect."""
        rounds = shown(self.run.answer.rounds.without_results(CANCELLED))
        kept = dataclasses.replace(kept, is_empty=kept.is_empty and not rounds.steps)
        if self.run.accepted.sleeper is not None:
            kept = kept_at_end(self.run, kept, self._made)
        if not self._made.rounds:
            return kept
        last = self._calls.decided(self.run.key) or self._made
        if last.asked_calls:
            audit = over(self.run.key, last, self.run.ownership.clock.now())
            kept = dataclasses.replace(kept, audit=(*kept.audit, *audit))
        if last.waiting_agents:
            kept, self._stopped = stop_asked(self.run, kept, last)
        turn = kept.turn
        if turn is not None and rounds.rounds and not self.run.hides_turn:
            made = tuple(ToolCall(call.id, call.name, call.arguments) for call in rounds.calls)
            turn = msgspec.structs.replace(turn, tool_calls=(*made, *(turn.tool_calls or ())) or None)
        gone = self._calls.end(self.run.key, self._made.without_results(CANCELLED))
        kept = dataclasses.replace(kept, turn=turn, row=_with_steps(kept.row, rounds))
        return kept.with_change(gone)

    def committed(self, outcome: Outcome) -> None:
        del outcome
        self._calls.forget(self.run.key)
        self.run.ownership.sleepers.settle([(self.run.key, None), *self._stopped])


def _with_steps(kept: records.KeptTurn | None, rounds: ToolRounds) -> records.KeptTurn | None:
    """The turn with the rounds before the calls in which it ends."""
    if kept is None:
        return None
    at = len(kept.steps) - (1 if kept.open_calls else 0)
    made = (dataclasses.replace(one, reasoning="") for one in rounds.steps)  # later turns do not read it
    called_at = rounds.rounds[0].end if rounds.rounds else None
    return msgspec.structs.replace(kept, steps=(*kept.steps[:at], *made, *kept.steps[at:]), called_at=called_at)


def _waits_for(calls: Sequence[ModelCall]) -> str:
    return f"the answer waits for {', '.join(dict.fromkeys(call.name for call in calls))}"


def _shown_call(call: ModelCall) -> dict[str, str]:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}
