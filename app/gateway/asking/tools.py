"""The tools that this gateway offers; programs on Kafka run them (app/tools).

A caller's schema can make the model write whatever arguments the caller wants, and a program runs every call of its
name. So over HTTP, a request with `tool_mode` `kafka` names tools that are offered here, and the schemas are those of
the offer. A tenant may bring schemas of its own for the tools that the policy names for it. In development mode, where
every caller may be any user, all tools may be named.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from app.gateway.edge.errors import invalid
from app.wire.request import Request
from app.wire.tools import ToolField, ToolMode


class ToolsFileError(Exception):
    """The file of `PARLEY_GATEWAY_TOOLS` cannot be used; one line with the reason."""


def offered_tools(path: Path | None) -> tuple[ToolField, ...]:
    """Read the file: a JSON list, as a request's `tools`. Raises `ToolsFileError`."""
    if path is None:
        return ()
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[ToolField, ...])
    except OSError as error:
        raise ToolsFileError(f"PARLEY_GATEWAY_TOOLS={path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ToolsFileError(f"PARLEY_GATEWAY_TOOLS={path}: it must be a JSON list of tools: {error}") from None


def with_offered_tools(request: Request, offered: Collection[ToolField], own: Collection[str]) -> Request:
    """The request with the schemas of the offer; raises `ApiError`. `own`: names of the tenant's own tools."""
    if request.tool_mode is not ToolMode.KAFKA or not request.tools:
        return request
    by_name = {tool.function.name: tool for tool in offered}
    tools = []
    for tool in request.tools:
        name = tool.function.name
        if name not in by_name and name not in own:
            raise invalid(
                "tools", f"{name} is none of the tools that this service runs; with tool_mode client you run it"
            )
        tools.append(tool if name in own else by_name[name])
    return msgspec.structs.replace(request, tools=tuple(tools))
