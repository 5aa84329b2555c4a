"""Tools that run beside the workers and answer the calls of `tool-calls`.

    from app.tools import Tools

    tools = Tools()

    @tools.tool
    async def order_status(order_number: str) -> dict[str, str]:
        ...  # where an order is
        return {"status": "packed"}

    tools.run()

`tools.run()` is a plain consumer, and `tools.agent(faust_app)` an agent of a Faust application. `tools.definitions` are
the `tools` of requests; with `"tool_mode": "kafka"` an answer that calls one of them waits for its result and goes on.
"""

from parley_client.tools import Tool, ToolError, current_call

from app.tools.tools import Tools

__all__ = ["Tool", "ToolError", "Tools", "current_call"]
