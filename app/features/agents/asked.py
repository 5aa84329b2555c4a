"""The stage of an agent's request that an answer has asked for (asking.py)."""

from __future__ import annotations

from app.answering.kept import Kept
from app.answering.run import Over, Run
from app.answering.stage import Decide, Ending, Feature, Round, Stage
from app.delivery.inflight import Outcome
from app.features.agents.asking import AskingRequest, asker_of, with_woken
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.approvals import LATE
from app.features.waits.wake import Woken, beside_of, wake_with
from app.policy.file import Policy
from app.wire.event import EventType, Plan
from models.interface.generation import FinishReason
from tables.asleep import Sleeper
from tables.tool_calls import AskedAgent, ToolOutcome, ToolRounds, fits


class AskedAgents(Feature):
    """On once a policy has let answers ask: those that were asked by then still have to tell their ends."""

    def __init__(self, tools: ToolsOverKafka, policy: Policy) -> None:
        self.tools = tools
        self._is_on = False
        self.use(policy)

    @property
    def is_on(self) -> bool:
        return self._is_on

    def use(self, policy: Policy) -> None:
        self._is_on |= any(rules.ask for rules in policy.tools.values())
        self._is_on |= any(rules.program for rules in policy.agents.values())

    def stage(self, run: Run) -> Stage | None:
        asker = asker_of(run.accepted.record.headers)
        return None if asker is None else AskedByAnswer(run, self.tools, asker)


class AskedByAnswer(Stage):
    """Of an agent's request. It ends early once no call waits for it; its end is the result of that call."""

    def __init__(self, run: Run, tools: ToolsOverKafka, asker: AskingRequest) -> None:
        super().__init__(run)
        self._calls, self._settings = tools.calls_of(run.ownership), tools.settings
        self._asker = (run.key[0], asker.request_id)
        self._left: Woken | None = None
        self._rounds: ToolRounds | None = None
        self._sleeper: Sleeper | None = None

    def _waiting(self) -> tuple[ToolRounds, AskedAgent] | None:
        """The rounds of the answer that waits for this one; None if none does any more."""
        rounds = self._calls.decided(self._asker)
        agents = () if rounds is None else rounds.waiting_agents
        agent = next((one for one in agents if one.call_id == self.run.key[1]), None)
        return None if rounds is None or agent is None else (rounds, agent)

    def _check(self) -> None:
        if self._waiting() is None:
            raise Over(self.run.ended_by(FinishReason.CANCELLED))

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        self._check()
        return await then(plan)

    async def round(self, then: Round) -> Ending:
        self._check()
        return await then()

    def leave(self, kept: Kept) -> Kept:
        if self._left is None and (waiting := self._waiting()) is not None:
            self._left = self._result(*waiting)
        return kept if self._left is None else with_woken(kept, self._left)

    def _result(self, rounds: ToolRounds, agent: AskedAgent) -> Woken:
        """Decide that this end is the result of the call."""
        run, ownership = self.run, self.run.ownership
        partition, asker = run.partition, self._asker
        outcome = ToolOutcome(agent.call_id, self._content(agent))
        size = len(outcome.content.encode())
        if size > self._settings.max_prompt_bytes or not fits(rounds.answered(outcome), beside_of(partition, asker)):
            outcome = ToolOutcome(agent.call_id, f"error: the agent's answer has {size} bytes, more than there is room")
        self._rounds = rounds = rounds.answered(outcome)
        change, woken = self._calls.decide(asker, rounds), wake_with(partition, asker, rounds)
        if (head := ownership.sleepers.head(asker)) is not None:
            self._calls.schedule.watch(asker, head, ownership.clock.now())
            self._sleeper = ownership.sleepers.under_way.get(asker)
        return Woken((change, *woken.changes), woken.outputs)

    def _content(self, agent: AskedAgent) -> str:
        end = self.run.inflight.written_end
        if end is None or end.type is EventType.ERROR:
            why = "" if end is None or end.error is None else f": {end.error.message}"
            return f"error: the agent {agent.agent} has failed{why}"
        if end.finish_reason in {FinishReason.STOP, FinishReason.LENGTH}:
            return self.run.answer.text
        return LATE if end.finish_reason is FinishReason.DEADLINE else f"error: {agent.agent}: {end.finish_reason}"

    def committed(self, outcome: Outcome) -> None:
        del outcome
        if self._rounds is not None:
            self._calls.settle({self._asker: self._rounds})
            self.run.ownership.sleepers.settle([(self._asker, self._sleeper)])
            self._calls.wake([self._asker])
