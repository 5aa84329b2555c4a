"""Tools and the choice among them, as chat completions and responses name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from app.gateway.edge.errors import ApiError, invalid
from app.wire.tools import Function, FunctionName, NamedTool, ToolChoice, ToolField


class FunctionBody(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolBody(FunctionBody, frozen=True, kw_only=True):
    """A function with its definition under `function` (chat completions) or beside `type` (responses)."""

    type: str = "function"
    function: FunctionBody | None = None

    @property
    def tool(self) -> ToolField:
        """Raises `ApiError`."""
        if self.type != "function":
            raise invalid("tools", f"the type {self.type} is not supported, only function")
        given = self.function or self
        if given.name is None:
            raise invalid("tools", "a function has no name")
        return ToolField(
            function=Function(
                name=given.name, description=given.description, parameters=given.parameters, strict=given.strict
            )
        )


class AllowedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that the answer may call, by name; `mode` is `auto` or `required`."""

    mode: str = "auto"
    tools: tuple[ToolBody, ...] = ()


class ChoiceBody(AllowedTools, frozen=True, kw_only=True):
    """`allowed_tools` has its fields in an object of that name (chat completions) or beside `type` (responses)."""

    type: str
    function: FunctionName | None = None
    name: str | None = None
    allowed_tools: AllowedTools | None = None


def tools_of(tools: Sequence[ToolBody] | None) -> tuple[ToolField, ...] | None:
    """Raises `ApiError`."""
    return tuple(tool.tool for tool in tools or ()) or None


def allowed_of(
    tools: Sequence[ToolBody] | None, choice: str | ChoiceBody | None
) -> tuple[tuple[ToolField, ...] | None, ToolChoice | None]:
    """The tools that the answer may call, and the choice among them. Raises `ApiError`."""
    given = tools_of(tools)
    if not isinstance(choice, ChoiceBody):
        return given, _mode(choice)
    if choice.type == "allowed_tools":
        return _allowed(given or (), choice.allowed_tools or choice)
    name = choice.function.name if choice.function is not None else choice.name
    if choice.type != "function" or not name:
        raise _wrong_choice()
    return given, NamedTool(FunctionName(name))


def flat(tools: Sequence[ToolField]) -> list[dict[str, Any]]:
    """As responses repeat them."""
    return [{"type": "function", **msgspec.structs.asdict(tool.function)} for tool in tools]


def _allowed(
    given: Sequence[ToolField], allowed: AllowedTools
) -> tuple[tuple[ToolField, ...] | None, ToolChoice | None]:
    if allowed.mode not in {"auto", "required"}:
        raise invalid("tool_choice", "the mode of allowed_tools must be auto or required")
    names = {tool.tool.function.name for tool in allowed.tools}
    if missing := names - {tool.function.name for tool in given}:
        raise invalid("tool_choice", f"no tool has the name {min(missing)}")
    if not names and allowed.mode == "required":
        raise invalid("tool_choice", "required needs at least one allowed tool")
    if not names:
        return tuple(given) or None, "none"
    return tuple(tool for tool in given if tool.function.name in names), _mode(allowed.mode)


def _mode(choice: str | None) -> ToolChoice | None:
    match choice:
        case None | "none" | "auto" | "required":
            return choice
    raise _wrong_choice()


def _wrong_choice() -> ApiError:
    return invalid("tool_choice", 'must be none, auto, required or {"type": "function", ...} with a name')
