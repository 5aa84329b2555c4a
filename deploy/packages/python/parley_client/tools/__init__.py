"""Tools that run beside Parley and answer the calls of `tool-calls`; `pip install 'parley-client[tools]'`.

    from parley_client.tools import Tools

    tools = Tools()

    @tools.tool
    async def order_status(order_number: str) -> dict[str, str]:
        ...  # where an order is
        return {"status": "packed"}

    tools.run("localhost:9092")

`tools.definitions` are the `tools` of requests; with `"tool_mode": "kafka"` an answer that calls one of them waits for
its result and goes on.
"""

from parley_client.tools.tool import Tool, ToolError
from parley_client.tools.tools import ToolCall, Tools, current_call

__all__ = ["Tool", "ToolCall", "ToolError", "Tools", "current_call"]
