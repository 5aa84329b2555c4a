"""Tools and the choice among them, as chat completions and responses name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from app.gateway.errors import invalid
from app.wire import NamedTool, Tool, ToolChoice
from app.wire.tools import Function, FunctionName


def tools_of(tools: Sequence[dict[str, Any]] | None) -> tuple[Tool, ...] | None:
    """Functions with their definition under `function` (chat completions) or beside `type` (responses).

    Raises `ApiError`.
    """
    found = []
    for tool in tools or ():
        if (kind := tool.get("type", "function")) != "function":
            raise invalid("tools", f"the type {kind} is not supported, only function")
        definition = tool.get("function", {name: value for name, value in tool.items() if name != "type"})
        try:
            found.append(Tool(function=msgspec.convert(definition, Function)))
        except msgspec.ValidationError as error:
            raise invalid("tools", str(error).replace("`$.", "`")) from None
    return tuple(found) or None


def choice_of(choice: str | dict[str, Any] | None) -> ToolChoice | None:
    """Raises `ApiError`."""
    if choice is None or (isinstance(choice, str) and choice in {"none", "auto", "required"}):
        return choice  # type: ignore[return-value]
    name = None
    if isinstance(choice, dict) and choice.get("type") == "function":
        name = (choice.get("function") or choice).get("name")
    if not isinstance(name, str):
        raise invalid("tool_choice", 'must be none, auto, required or {"type": "function", ...} with a name')
    return NamedTool(FunctionName(name))
