"""What the policy says of agents, `[agents.NAME]`: what a request that names one is, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from app.policy.mistakes import Mistake
from app.policy.tools import MOST_S, ToolRules
from app.wire.error import WireError
from app.wire.ids import is_tool_name
from app.wire.request import Message, Request, Role
from app.wire.tools import Function, ToolField, ToolMode
from app.wire.validation import validate_request

MOST_DEEP = 3
"""How many agents that are asked may ask one another in a row."""
_STEP_S = 86_400.0
_QUESTION = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}
"""The arguments of a tool that is an agent, unless it has a schema of its own."""


class AgentRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that names the agent has its instructions (`system`), its `model`, by default that of any request, and
    those of `[tools.NAME]` that it names. Programs on Kafka run them. With `program` a program decides what its answers
    do (app/features/programs), and has `within_s` for each step, by default a day.
    """

    system: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()
    program: bool = False
    within_s: float | None = None

    @property
    def step_ms(self) -> int:
        return round((self.within_s or _STEP_S) * 1000)

    def mistakes(self) -> Iterator[Mistake]:
        """What the types cannot express."""
        if self.within_s is not None and not 0 < self.within_s <= MOST_S:
            yield Mistake("within_s", f"within_s must be above 0 and at most {MOST_S}")
        if self.within_s is not None and not self.program:
            yield Mistake("within_s program", "within_s is the time of a program's step, so it needs program = true")
        if self.program and self.tools:
            yield Mistake("program tools", "program excludes tools: a program calls tools itself, by their names")


def as_agent(request: Request, rules: AgentRules, tools: Mapping[str, ToolRules]) -> Request:
    """The request of an agent as one that brings all of it, and names none, unless that is a program."""
    request = msgspec.structs.replace(request, agent=request.agent if rules.program else None, model=rules.model)
    if rules.system:
        said = request.messages
        if said is None:
            said = (Message(Role.USER, request.prompt),)
            request = msgspec.structs.replace(request, prompt=None, continue_conversation=True)
        request = msgspec.structs.replace(request, messages=(Message(Role.SYSTEM, rules.system), *said))
    if rules.tools:
        fields = tuple(_field(name, tools.get(name, ToolRules())) for name in rules.tools)
        request = msgspec.structs.replace(request, tools=fields)
    return msgspec.structs.replace(request, tool_mode=ToolMode.KAFKA) if rules.tools or rules.program else request


def is_of_program(request: Request) -> bool:
    """Whether the request is one of an agent that is a program. No sender may name an agent and a `tool_mode`."""
    return request.agent is not None and request.tool_mode is ToolMode.KAFKA


def _field(name: str, rules: ToolRules) -> ToolField:
    parameters = rules.parameters or (_QUESTION if rules.ask else None)
    return ToolField(function=Function(name=name, description=rules.description, parameters=parameters))


def agent_mistakes(
    agents: Mapping[str, AgentRules], tools: Mapping[str, ToolRules], models: Sequence[str], most: int
) -> Iterator[str]:
    """What is wrong with agents beside `models`, whose prompts may have `most` bytes."""
    for name, rules in agents.items():
        path = f"agents.{name}" if name.replace("-", "_").isidentifier() else f'agents."{name}"'
        if not is_tool_name(name):
            yield f"{path}: a name must be 1-64 of A-Z a-z 0-9 _ . -"
        if name in models:
            yield f"{path}: a model has this name"
        if rules.model is not None and rules.model not in models:
            yield f"{path}.model: there is no model {rules.model!r}; there are {', '.join(models)}"
        unknown = [one for one in rules.tools if one not in tools]
        yield from (f"{path}.tools: there is no [tools.{one}]; there are {_listed(tools)}" for one in unknown)
        plain = msgspec.structs.replace(rules, program=False)
        request = as_agent(Request(request_id="x", user_id="x", prompt="x"), plain, tools)
        try:
            validate_request(request, b"x", max_prompt_bytes=most)
        except WireError as error:
            yield f"{path}: {error.message}"


def ask_mistakes(agents: Mapping[str, AgentRules], tools: Mapping[str, ToolRules], *, has_waits: bool) -> Iterator[str]:
    """What is wrong with tools that are agents, and with agents that wait."""
    if not has_waits:
        programs = (name for name, rules in agents.items() if rules.program)
        yield from (f"agents.{name}.program: needs the table [waits]: answers wait for programs" for name in programs)
    for name, rules in tools.items():
        if rules.ask is None:
            continue
        if not has_waits:
            yield f"tools.{name}.ask: needs the table [waits]: answers wait asleep for an agent"
        if rules.ask not in agents:
            yield f"tools.{name}.ask: there is no [agents.{rules.ask}]; there are {_listed(agents)}"
    for name in agents:
        chain = _longest(name, agents, tools, ())
        if chain[-1] in chain[:-1]:
            if chain[-1] == min(chain) == name:  # each circle is told once
                yield f"agents.{name}: these agents ask one another in a circle: {' -> '.join(chain)}"
        elif len(chain) > MOST_DEEP + 1:
            yield f"agents.{name}: asks {len(chain) - 1} deep, at most {MOST_DEEP} are possible: {' -> '.join(chain)}"


def _longest(
    name: str, agents: Mapping[str, AgentRules], tools: Mapping[str, ToolRules], before: tuple[str, ...]
) -> tuple[str, ...]:
    """The longest row of agents that ask one another, or one that is a circle."""
    chain = (*before, name)
    if name in before or len(before) > MOST_DEEP:
        return chain
    rules = agents.get(name, AgentRules())
    asked = dict.fromkeys(ask for one in rules.tools if one in tools and (ask := tools[one].ask) is not None)
    rows = [_longest(one, agents, tools, chain) for one in asked]
    circle = next((row for row in rows if row[-1] in row[:-1]), None)
    return circle or max(rows, key=len, default=chain)


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"
