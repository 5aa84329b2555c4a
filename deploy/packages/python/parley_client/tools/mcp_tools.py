"""The tools of an MCP server (Model Context Protocol), by a client of the package `mcp`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from parley_client.tools.tool import Tool, ToolError

if TYPE_CHECKING:
    from mcp import Client

_MOST_PAGES = 200
MAX_TOOLS = 128
"""Of a request."""


async def mcp_tools(client: Client) -> list[Tool]:
    """The tools of the server that the client is connected to; raises `ToolError` if it does not come to their end."""
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += (
            Tool(one.name, one.description or "", one.input_schema, partial(_call, client, one.name))
            for one in page.tools
        )
        cursor = page.next_cursor
        if cursor is None:
            return tools
        if len(tools) > MAX_TOOLS:
            break
    raise ToolError(f"the MCP server lists more than {MAX_TOOLS} tools, or more than {_MOST_PAGES} pages of them")


async def _call(client: Client, name: str, arguments: str) -> str:
    result = await client.call_tool(name, msgspec.json.decode(arguments, type=dict[str, object]))
    texts = [block.text for block in result.content if block.type == "text"]
    if not texts and result.structured_content is not None:
        texts = [msgspec.json.encode(result.structured_content).decode()]
    text = "\n".join(texts)
    if result.is_error:
        raise ToolError(text or f"{name} failed")
    return text
