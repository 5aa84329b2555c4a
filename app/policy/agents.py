"""What the policy says of agents, `[agents.NAME]`: what a request that names one is, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from app.policy.tools import ToolRules
from app.wire.error import WireError
from app.wire.ids import is_tool_name
from app.wire.request import Message, Request, Role
from app.wire.tools import Function, ToolField, ToolMode
from app.wire.validation import validate_request


class AgentRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that names the agent has its instructions (`system`), its `model`, by default that of any request, and
    those of `[tools.NAME]` that it names. Programs on Kafka run them.
    """

    system: str = ""
    model: str | None = None
    tools: tuple[str, ...] = ()


def as_agent(request: Request, rules: AgentRules, tools: Mapping[str, ToolRules]) -> Request:
    """The request of an agent as one that brings all of it, and names none."""
    request = msgspec.structs.replace(request, agent=None, model=rules.model)
    if rules.system:
        said = request.messages
        if said is None:
            said = (Message(Role.USER, request.prompt),)
            request = msgspec.structs.replace(request, prompt=None, continue_conversation=True)
        request = msgspec.structs.replace(request, messages=(Message(Role.SYSTEM, rules.system), *said))
    if rules.tools:
        fields = tuple(_field(name, tools.get(name, ToolRules())) for name in rules.tools)
        request = msgspec.structs.replace(request, tools=fields, tool_mode=ToolMode.KAFKA)
    return request


def _field(name: str, rules: ToolRules) -> ToolField:
    return ToolField(function=Function(name=name, description=rules.description, parameters=rules.parameters))


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
        request = as_agent(Request(request_id="x", user_id="x", prompt="x"), rules, tools)
        try:
            validate_request(request, b"x", max_prompt_bytes=most)
        except WireError as error:
            yield f"{path}: {error.message}"


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(sorted(names)) or "none"
