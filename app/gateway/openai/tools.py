"""Tools and the choice among them, as chat completions and responses name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from app.gateway.errors import ApiError, invalid
from app.wire import Tool, ToolChoice
from app.wire.tools import Function


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
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise _wrong_choice()
        choice = {**choice, "function": choice.get("function") or {"name": choice.get("name")}}
    try:
        return msgspec.convert(choice, ToolChoice | None)
    except msgspec.ValidationError:
        raise _wrong_choice() from None


def _wrong_choice() -> ApiError:
    return invalid("tool_choice", 'must be none, auto, required or {"type": "function", ...} with a name')
