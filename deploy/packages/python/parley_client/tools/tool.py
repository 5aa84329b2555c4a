"""One tool: its name, what it does, the schema of its arguments, and the call."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class ToolError(Exception):
    """The call fails; the model reads the message."""


@dataclass(frozen=True, slots=True)
class Tool:
    """`parameters` is the arguments' JSON schema. `call` takes them as JSON text and returns the text of the result."""

    name: str
    description: str
    parameters: dict[str, Any]
    call: Callable[[str], Awaitable[str]]

    @property
    def definition(self) -> dict[str, Any]:
        """An entry of a request's `tools`."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


def tool_of(function: Callable[..., Any], name: str | None = None, description: str | None = None) -> Tool:
    """A tool that calls `function`, a coroutine function or a plain one, which runs in a thread.

    Arguments are checked against the annotations. A result that is no string is written as JSON.

    Raises:
        TypeError: a parameter has no annotation or takes a variable number of arguments, or the name is no tool's name.
    """
    name = name or function.__name__
    if not _NAME.fullmatch(name):
        raise TypeError(f"{name}: a tool's name must be 1-64 of A-Z a-z 0-9 _ . -")
    arguments = _arguments_of(function)

    async def call(text: str) -> str:
        try:
            given = msgspec.json.decode(text, type=arguments)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ToolError(f"wrong arguments: {error}") from None
        fields = {field: getattr(given, field) for field in arguments.__struct_fields__}
        if inspect.iscoroutinefunction(function):
            result = await function(**fields)
        else:
            result = await asyncio.to_thread(function, **fields)
        return result if isinstance(result, str) else msgspec.json.encode(result).decode()

    return Tool(name, description or inspect.getdoc(function) or "", _schema_of(arguments), call)


def _arguments_of(function: Callable[..., Any]) -> type[msgspec.Struct]:
    hints = get_type_hints(function, include_extras=True)
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            raise TypeError(f"{function.__name__}: the parameter {parameter.name} must be one that can be named")
        if parameter.name not in hints:
            raise TypeError(f"{function.__name__}: the parameter {parameter.name} needs an annotation")
        default = () if parameter.default is parameter.empty else (parameter.default,)
        fields.append((parameter.name, hints[parameter.name], *default))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (_,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    schema = components.pop(arguments.__name__)
    del schema["title"]
    return {**schema, "$defs": components} if components else schema
