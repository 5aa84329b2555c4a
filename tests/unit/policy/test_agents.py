"""Agents of the policy: what a request that names one is, and which policies are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.policy.agents import AgentRules, as_agent, is_of_program
from app.policy.check import read_policy
from app.policy.tools import ToolRules
from app.wire.request import Message, Request, Role
from app.wire.tools import ToolMode
from tests.unit.policy.test_check import found, settings, write

SHOP = """
[models.small]
path = "demo"

[tools.order_status]
description = "Where an order is"
parameters = { type = "object", properties = { order = { type = "string" } }, required = ["order"] }

[agents.support]
system = "You answer for the shop."
model = "small"
tools = ["order_status"]
"""


def _asked(**fields: object) -> Request:
    return Request(request_id="r", user_id="ann", agent="support", **fields)  # type: ignore[arg-type]


def test_a_request_of_an_agent_is_one_that_brings_its_instructions_model_and_tools(tmp_path: Path) -> None:
    policy = read_policy(settings(write(tmp_path, SHOP)))
    request = as_agent(_asked(prompt="where is it?"), policy.agents["support"], policy.tools)
    assert (request.agent, request.model, request.prompt, request.tool_mode) == (None, "small", None, ToolMode.KAFKA)
    assert request.messages == (
        Message(Role.SYSTEM, "You answer for the shop."),
        Message(Role.USER, "where is it?"),
    )
    assert request.question == "where is it?"
    assert request.sees_conversation
    (tool,) = request.tools or ()
    assert (tool.function.name, tool.function.description) == ("order_status", "Where an order is")
    assert (tool.function.parameters or {})["required"] == ["order"]


def test_messages_of_the_sender_stay_its_whole_context() -> None:
    request = as_agent(_asked(messages=(Message(Role.USER, "hello"),)), AgentRules(system="Be brief."), {})
    assert [one.role for one in request.messages or ()] == [Role.SYSTEM, Role.USER]
    assert not request.sees_conversation
    assert (request.tools, request.tool_mode) == (None, ToolMode.CLIENT)


def test_an_agent_without_instructions_changes_no_prompt() -> None:
    request = as_agent(_asked(prompt="hello"), AgentRules(tools=("a",)), {"a": ToolRules()})
    assert (request.prompt, request.messages) == ("hello", None)


@pytest.mark.parametrize(
    ("added", "mistake"),
    [
        ('[agents.a]\nmodel = "large"', "agents.a.model: there is no model 'large'; there are default, small"),
        ('[agents.a]\ntools = ["refund"]', "agents.a.tools: there is no [tools.refund]; there are order_status"),
        ('[agents.a]\ntools = ["order_status", "order_status"]', "agents.a: tools: two have the same name"),
        ("[agents.small]", "agents.small: a model has this name"),
        ('[agents."a b"]', 'agents."a b": a name must be 1-64 of A-Z a-z 0-9 _ . -'),
        ('[agents.a]\nprompt = "x"', "agents.a.prompt: is not known"),
        (
            '[agents.a]\ntools = ["t"]\n[tools.t]\nparameters = { type = "string" }',
            "agents.a: tools: the parameters of t must be a schema of the type object",
        ),
    ],
)
def test_a_mistake_is_told_when_the_policy_is_read(tmp_path: Path, added: str, mistake: str) -> None:
    (told,) = found(tmp_path, f"{SHOP}\n{added}")
    assert told.startswith(mistake)


def test_an_agent_that_fills_every_prompt_is_refused(tmp_path: Path) -> None:
    (told,) = found(tmp_path, f'[agents.a]\nsystem = "{"x" * 200}"', max_prompt_bytes=100)
    assert told == "agents.a: the prompt has 201 bytes, the limit is 100"


ASKS = f"""{SHOP}
[waits]
[agents.researcher]
[tools.research]
ask = "researcher"
within_s = 60
"""


def test_a_tool_that_is_an_agent_takes_a_question(tmp_path: Path) -> None:
    policy = read_policy(settings(write(tmp_path, ASKS)))
    request = as_agent(_asked(prompt="hi"), AgentRules(tools=("research",)), policy.tools)
    (tool,) = request.tools or ()
    assert (tool.function.parameters or {})["required"] == ["question"]
    assert policy.tools["research"].answer_ms == 60_000
    assert ToolRules(ask="researcher").answer_ms == 600_000


def test_answers_wait_asleep_for_an_agent(tmp_path: Path) -> None:
    (told,) = found(tmp_path, ASKS.replace("[waits]", ""))
    assert told == "tools.research.ask: needs the table [waits]: answers wait asleep for an agent"


@pytest.mark.parametrize(
    ("added", "mistake"),
    [
        ('[tools.t]\nask = "nobody"', "tools.t.ask: there is no [agents.nobody]; there are researcher, support"),
        ('[tools.t]\nask = "support"\napprove = { by = "desk" }', "tools.t: ask excludes approve"),
        ('[tools.t]\nask = "support"\nwithin_s = 0', "tools.t: within_s must be above 0"),
        ("[tools.t]\nwithin_s = 5", "tools.t: within_s is the time of an agent, so it needs ask"),
        (
            '[agents.a]\ntools = ["b"]\n[agents.b]\ntools = ["a"]\n[tools.a]\nask = "a"\n[tools.b]\nask = "b"',
            "agents.a: these agents ask one another in a circle: a -> b -> a",
        ),
        (
            '[agents.a]\ntools = ["a"]\n[tools.a]\nask = "a"',
            "agents.a: these agents ask one another in a circle: a -> a",
        ),
        (
            "\n".join(f'[agents.a{n}]\ntools = ["t{n + 1}"]\n[tools.t{n + 1}]\nask = "a{n + 1}"' for n in range(4))
            + "\n[agents.a4]",
            "agents.a0: asks 4 deep, at most 3 are possible: a0 -> a1 -> a2 -> a3 -> a4",
        ),
    ],
)
def test_a_mistake_of_tools_that_are_agents_is_told(tmp_path: Path, added: str, mistake: str) -> None:
    (told,) = found(tmp_path, f"{ASKS}\n{added}")
    assert told.startswith(mistake)


def test_agents_that_ask_who_is_asked_by_others_are_no_circle(tmp_path: Path) -> None:
    both = '[agents.a]\ntools = ["b", "research"]\n[agents.b]\ntools = ["research"]\n[tools.b]\nask = "b"'
    assert found(tmp_path, f"{ASKS}\n{both}") == []


PROGRAM = "[waits]\n[agents.desk]\nprogram = true\n"


def test_the_request_of_a_program_names_it_still(tmp_path: Path) -> None:
    policy = read_policy(settings(write(tmp_path, f'{PROGRAM}system = "Be kind."\nwithin_s = 60')))
    rules = policy.agents["desk"]
    request = as_agent(Request(request_id="r", user_id="ann", agent="desk", prompt="hi"), rules, policy.tools)
    assert (request.agent, request.tool_mode, request.tools) == ("desk", ToolMode.KAFKA, None)
    assert is_of_program(request)
    assert [one.role for one in request.messages or ()] == [Role.SYSTEM, Role.USER]
    assert (rules.step_ms, AgentRules(program=True).step_ms) == (60_000, 86_400_000)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("[agents.desk]\nprogram = true", "agents.desk.program: needs the table [waits]: answers wait for programs"),
        (f'{PROGRAM}tools = ["t"]\n[tools.t]', "agents.desk: program excludes tools"),
        (f"{PROGRAM}within_s = 0", "agents.desk: within_s must be above 0"),
        ("[agents.desk]\nwithin_s = 5", "agents.desk: within_s is the time of a program's step"),
    ],
)
def test_a_mistake_of_a_program_is_told(tmp_path: Path, text: str, mistake: str) -> None:
    (told,) = found(tmp_path, text)
    assert told.startswith(mistake)
