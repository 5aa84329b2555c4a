"""Requests that name an agent of the policy.

The agent's instructions, model and tools become the request's own when its record is read, so all parts behind that see
a request that brings them. Its record keeps what its sender wrote: a next owner reads the agent of its own policy. If
that is another one, the prompt is another one too, and the answer ends as `partial`, as with any other prompt; an
answer that sleeps goes on as the agent of then. A request whose agent is not there ends with an error that names those
that are.
"""

from __future__ import annotations

from app.answering.run import Over, RequestRefused, Run
from app.answering.stage import Decide, Ending, Feature, Round, Stage
from app.policy.agents import as_agent, is_of_program
from app.policy.file import Policy
from app.wire.error import ErrorCode
from app.wire.event import Plan
from app.wire.request import Request
from models.interface.generation import FinishReason


class NamedAgents(Feature):
    def __init__(self, policy: Policy) -> None:
        self.use(policy)

    @property
    def is_on(self) -> bool:
        return False

    def use(self, policy: Policy) -> None:
        self._agents, self._tools = policy.agents, policy.tools

    def read(self, request: Request) -> Request:
        """The request with what its agent brings. One whose agent is not there still names it."""
        rules = self._agents.get(request.agent or "")
        return request if rules is None else as_agent(request, rules, self._tools)

    def stage(self, run: Run) -> Stage | None:
        request = run.accepted.request
        return None if request.agent is None or is_of_program(request) else UnknownAgent(run, self)

    def refusal(self, name: str | None) -> RequestRefused:
        there_are = ", ".join(sorted(self._agents)) or "none"
        return RequestRefused(ErrorCode.INVALID_REQUEST, f"agent: there is no {name!r}; there are: {there_are}")


class UnknownAgent(Stage):
    def __init__(self, run: Run, agents: NamedAgents) -> None:
        super().__init__(run)
        self._agents = agents

    async def decide(self, plan: Plan, then: Decide) -> Plan:
        del plan, then
        raise self._agents.refusal(self.run.accepted.request.agent)

    async def round(self, then: Round) -> Ending:
        """The policy had the agent when the answer began: the tokens that it wrote are kept."""
        del then
        if self.run.answer.index or self.run.answer.rounds.rounds:
            raise Over(self.run.ended_by(FinishReason.PARTIAL))
        raise self._agents.refusal(self.run.accepted.request.agent)
