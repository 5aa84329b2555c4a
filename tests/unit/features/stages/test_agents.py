"""Requests that name an agent that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.agents.named import NamedAgents
from app.policy.agents import AgentRules
from app.policy.file import Policy
from app.wire.error import ErrorCode
from app.wire.request import Request
from models.interface.generation import FinishReason
from tests.unit.answering.bench import answered

AGENTS = NamedAgents(Policy(agents={"support": AgentRules(system="Be kind."), "sales": AgentRules()}))


async def test_an_agent_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    told = await answered(AGENTS, agent="suport")
    assert told.end.error is not None
    assert told.end.error.code is ErrorCode.INVALID_REQUEST
    assert told.end.error.message == "agent: there is no 'suport'; there are: sales, support"


@pytest.mark.parametrize("is_plain", [True, False])
async def test_who_names_none_meets_no_stage(*, is_plain: bool) -> None:
    fields: dict[str, Any] = {"request_id": "r", "user_id": "ann", "prompt": "hi"}
    request = AGENTS.read(Request(**fields, agent=None if is_plain else "support"))
    assert request.agent is None
    told = await answered(AGENTS)
    assert told.end.finish_reason is not FinishReason.PARTIAL
