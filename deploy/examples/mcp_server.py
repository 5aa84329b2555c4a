"""An MCP server whose tools ask Parley: an agent's questions are records, and their answers survive the agent.

Agents start it themselves, over stdio:

    pip install mcp /path/to/parley/deploy/packages/python
    {"mcpServers": {"parley": {"command": "python", "args": ["deploy/examples/mcp_server.py"]}}}

PARLEY_URL is the gateway (http://127.0.0.1:8080); PARLEY_KEY the user's key, or PARLEY_USER the user where there are
none.
"""

from __future__ import annotations

import os

from mcp.server.mcpserver import MCPServer
from parley_client import AsyncParley

server = MCPServer("parley")


def parley() -> AsyncParley:
    url = os.environ.get("PARLEY_URL", "http://127.0.0.1:8080")
    key = os.environ.get("PARLEY_KEY")
    return AsyncParley(url, key=key) if key else AsyncParley(url, user=os.environ.get("PARLEY_USER", "agent"))


@server.tool()
async def ask(prompt: str, conversation: str = "default", request_id: str | None = None) -> str:
    """Ask in a conversation that is remembered. Under a request_id of yours, a call that is repeated is asked once."""
    async with parley() as client:
        answer = await client.ask(prompt, conversation=conversation, request_id=request_id)
        return (await answer.result()).text


@server.tool()
async def search(query: str, limit: int = 5) -> list[dict[str, str]]:
    """What was said before, in all conversations of this user, by meaning and words."""
    async with parley() as client:
        found = await client.search(query, limit=limit)
    return [{"role": one["role"], "text": one["text"], "conversation": one["conversation_id"]} for one in found]


if __name__ == "__main__":
    server.run("stdio")
