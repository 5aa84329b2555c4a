"""A set of tools, and the ways to run them."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, overload

from app.settings import Settings, settings
from app.tools.mcp_tools import mcp_tools
from app.tools.serving import ToolServer
from app.tools.tool import Tool, ToolError, tool_of
from app.wire.codec import decode, encode
from app.wire.error import WireError
from app.wire.headers import format_of, trace_headers_of
from app.wire.tool_records import ToolCallRecord, ToolResultRecord

if TYPE_CHECKING:
    import faust
    from mcp import Client

log = logging.getLogger(__name__)

current_call: ContextVar[ToolCallRecord] = ContextVar("current_call")

F = TypeVar("F", bound=Callable[..., Any])
Headers = list[tuple[str, bytes]]


class Tools:
    """Answers the calls of its tools, and leaves all other calls to other programs.

    A call runs at least once: again if the program ends before its result is committed. The worker takes one result per
    call. `current_call.get()` is the call's record: whose it is, and an id that can serve as an idempotency key.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}

    @overload
    def tool(self, function: F) -> F: ...

    @overload
    def tool(self, *, name: str | None = None, description: str | None = None) -> Callable[[F], F]: ...

    def tool(self, function: F | None = None, *, name: str | None = None, description: str | None = None) -> Any:
        """Decorate a function to make it a tool. Its docstring is the description that the model reads."""

        def decorated(function: F) -> F:
            self.add(tool_of(function, name, description))
            return function

        return decorated if function is None else decorated(function)

    def add(self, tool: Tool) -> None:
        if tool.name in self._tools:
            raise ValueError(f"there are two tools {tool.name}")
        self._tools[tool.name] = tool

    async def add_mcp(self, client: Client) -> None:
        """Add all tools of an MCP server. The client has to stay connected while the tools run. Raises `ToolError` for
        a server that lists tools without end.
        """
        for tool in await mcp_tools(client):
            self.add(tool)

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The `tools` of a request."""
        return [tool.definition for tool in self._tools.values()]

    def run(self, group: str = "parley-tools") -> None:
        """Answer calls until SIGTERM or SIGINT, with the settings of the environment."""
        asyncio.run(self.serve(settings(), group))

    async def serve(self, parley: Settings, group: str = "parley-tools") -> None:
        """Answer calls until SIGTERM or SIGINT; raises `KafkaUnusableError`."""
        serving = asyncio.ensure_future(ToolServer(parley, group, self.answer).serve())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving

    def agent(self, app: faust.App, *, prefix: str = "", concurrency: int = 8) -> Any:
        """An agent of the Faust application that answers calls.

        Without `processing_guarantee="exactly_once"` Faust also reads calls whose transaction is aborted. The worker
        makes them again, with the same id.
        """
        raw: dict[str, Any] = {
            "key_type": bytes,
            "value_type": bytes,
            "key_serializer": "raw",
            "value_serializer": "raw",
        }
        calls, results = app.topic(f"{prefix}tool-calls", **raw), app.topic(f"{prefix}tool-results", **raw)

        async def answer_calls(stream: Any) -> None:
            async for event in stream.events():
                message = event.message
                answered = await self.answer(message.value, tuple(message.headers or ()))
                if answered is not None:
                    value, headers = answered
                    await results.send(key=message.key, value=value, headers=headers)

        return app.agent(calls, name="parley-tools", concurrency=concurrency)(answer_calls)

    async def answer(
        self, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
    ) -> tuple[bytes, Headers] | None:
        """The record for `tool-results` to a record of `tool-calls`; None if no tool of this set is called, or its time
        is over.
        """
        headers = tuple(headers)
        try:
            call = decode(ToolCallRecord, value, headers)
        except WireError as error:
            log.error("a record of tool-calls cannot be read: %s", error)
            return None
        tool = self._tools.get(call.name)
        if tool is None:
            return None
        left_s = call.expires_at / 1000 - time.time()
        if left_s <= 0:
            why = "call %s of %s is not run: its time was over %.1f s ago by this machine's clock"
            log.warning(why, call.tool_call_id, call.name, -left_s)
            return None
        encoded, more = encode(await _result(tool, call, left_s), format_of(headers))
        return encoded, [*more, *trace_headers_of(headers)]


async def _result(tool: Tool, call: ToolCallRecord, left_s: float) -> ToolResultRecord:
    content, is_error = "", True
    current_call.set(call)
    try:
        async with asyncio.timeout(left_s):
            content, is_error = await tool.call(call.arguments), False
    except TimeoutError:
        content = f"error: {call.name} did not answer in time"
    except ToolError as error:
        content = f"error: {error}"
    except Exception:
        log.exception("call %s of %s failed", call.tool_call_id, call.name)
        content = f"error: {call.name} failed"  # the exception's own words are for the log of this program
    return ToolResultRecord(
        tool_call_id=call.tool_call_id,
        request_id=call.request_id,
        user_id=call.user_id,
        content=content,
        is_error=is_error,
    )
