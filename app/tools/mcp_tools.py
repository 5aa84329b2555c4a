"""The tools of an MCP server (Model Context Protocol), by a client of the package `mcp`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from app.tools.tool import Tool, ToolError

if TYPE_CHECKING:
    from mcp import Client


async def mcp_tools(client: Client) -> list[Tool]:
    """The tools of the server that the client is connected to."""
    tools: list[Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += (
            Tool(one.name, one.description or "", one.input_schema, partial(_call, client, one.name))
            for one in page.tools
        )
        cursor = page.next_cursor
        if cursor is None:
            return tools


async def _call(client: Client, name: str, arguments: str) -> str:
    result = await client.call_tool(name, msgspec.json.decode(arguments, type=dict[str, object]))
    texts = [block.text for block in result.content if block.type == "text"]
    if not texts and result.structured_content is not None:
        texts = [msgspec.json.encode(result.structured_content).decode()]
    text = "\n".join(texts)
    if result.is_error:
        raise ToolError(text or f"{name} failed")
    return text
