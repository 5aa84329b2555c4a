"""A set of tools, and the ways to run them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import msgspec

from parley_client.tools.mcp_tools import mcp_tools
from parley_client.tools.serving import serve
from parley_client.tools.tool import Tool, ToolError, tool_of

if TYPE_CHECKING:
    from mcp import Client

log = logging.getLogger("parley_client.tools")

MOST_BYTES = 900_000
"""Of a result. What is larger, or than the topic takes, is an error that the model reads."""
_MOST_WORDS = 1000
_TRACES = {"traceparent", "tracestate"}

F = TypeVar("F", bound=Callable[..., Any])
Headers = list[tuple[str, bytes]]


class ToolCall(Protocol):
    """A call. `arguments` is JSON text. `tool_call_id` is the same however often the call runs, so it can serve as an
    idempotency key. A result behind `expires_at` (Unix milliseconds) is not used. `user_id` and `tenant` can be
    believed; the arguments are the caller's.
    """

    @property
    def tool_call_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str: ...
    @property
    def request_id(self) -> str: ...
    @property
    def user_id(self) -> str: ...
    @property
    def conversation_id(self) -> str: ...
    @property
    def created_at(self) -> int: ...
    @property
    def expires_at(self) -> int: ...
    @property
    def tenant(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class PlainCall:
    """A record of `tool-calls` in JSON."""

    tool_call_id: str
    name: str
    arguments: str
    request_id: str
    user_id: str
    conversation_id: str
    created_at: int
    expires_at: int
    tenant: str | None = None


current_call: ContextVar[ToolCall] = ContextVar("current_call")


class Tools:
    """Answers the calls of its tools, and leaves all other calls to other programs.

    A call runs at least once: again if the program ends before its result is committed. The worker takes one result per
    call. `current_call.get()` is the call that runs.
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
        """Raises `ValueError` if there is one of its name."""
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

    def run(self, brokers: str, *, group: str = "parley-tools", prefix: str = "", **options: Any) -> None:
        """Answer calls until the program is stopped; `options` are those of aiokafka's clients."""
        asyncio.run(serve(self.answer, brokers, group, prefix, options))

    async def answer(
        self, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
    ) -> tuple[bytes, Headers] | None:
        """The record for `tool-results` to a record of `tool-calls`; None if no tool of this set is called, or its time
        is over. Whatever a tool does, its call has one result.
        """
        given = [(name, one) for name, one in headers if one is not None]
        if dict(given).get("content-type") == b"application/x-protobuf":
            raise ToolError("the workers write Protobuf (PARLEY_WIRE_FORMAT): run these tools by app.tools")
        try:
            call = msgspec.json.decode(value or b"", type=PlainCall)
        except (msgspec.DecodeError, UnicodeError) as error:
            log.error("a record of tool-calls cannot be read: %s", type(error).__name__)
            return None
        if (left_s := self.left_s(call)) is None:
            return None
        content, is_error = await self.result_of(call, left_s, MOST_BYTES)
        ids = {"tool_call_id": call.tool_call_id, "request_id": call.request_id, "user_id": call.user_id}
        result = {**ids, "content": content, **({"is_error": True} if is_error else {})}
        return json.dumps(result, ensure_ascii=False).encode(), [one for one in given if one[0] in _TRACES]

    def left_s(self, call: ToolCall) -> float | None:
        """How long a call of this set's may run; None if another set has the tool, or its time is over."""
        if call.name not in self._tools:
            return None
        left_s = call.expires_at / 1000 - time.time()
        if left_s > 0:
            return left_s
        why = "call %s of %s is not run: its time was over %.1f s ago by this machine's clock"
        log.warning(why, call.tool_call_id, call.name, -left_s)
        return None

    async def result_of(self, call: ToolCall, left_s: float, most_bytes: int) -> tuple[str, bool]:
        """The text of its result, and whether it is an error. Whatever the tool raises is its call's result, also what
        ends a program (`sys.exit`) or cancels a task.
        """
        content, is_error = "", True
        current_call.set(call)
        try:
            async with asyncio.timeout(left_s):
                answer = await self._tools[call.name].call(call.arguments)
                content, is_error = answer.encode(errors="replace").decode(), False
        except TimeoutError:
            content = f"error: {call.name} did not answer in time"
        except ToolError as error:
            content = _words_of(error)
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            log.exception("call %s of %s failed", call.tool_call_id, call.name)
            content = f"error: {call.name} failed"  # the exception's own words are for the log of this program
        size = len(content.encode())
        if size > most_bytes:
            return f"error: the result of {call.name} has {size} bytes; it may have {most_bytes}", True
        return content, is_error


def _words_of(error: ToolError) -> str:
    try:
        words = f"error: {error}".encode(errors="replace").decode()
    except Exception:  # noqa: BLE001 - the words are a program's of its own
        return "error: the tool failed"
    return words if len(words) <= _MOST_WORDS else f"{words[: _MOST_WORDS - 3]}..."
