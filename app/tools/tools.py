"""A set of tools, and the ways to run them."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from app.settings import Settings, settings
from app.tools.mcp_tools import mcp_tools
from app.tools.serving import ToolServer
from app.tools.tool import Tool, ToolError, tool_of
from app.wire.codec import decode, encode, format_of, trace_headers_of
from app.wire.error import WireError, shortened
from app.wire.json_codec import MalformedError
from app.wire.record_size import MAX_RECORD_BYTES
from app.wire.tool_records import ToolCallRecord, ToolResultRecord

if TYPE_CHECKING:
    import faust
    from mcp import Client

log = logging.getLogger(__name__)

current_call: ContextVar[ToolCallRecord] = ContextVar("current_call")

MOST_RECORD_BYTES = MAX_RECORD_BYTES - (16 << 10)
"""Of a result; the rest is for key, headers and the framing of a batch."""

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
        answer = partial(self.answer, most_bytes=parley.max_prompt_bytes)
        serving = asyncio.ensure_future(ToolServer(parley, group, answer, refusal_of).serve())
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
        self, value: bytes | None, headers: Iterable[tuple[str, bytes | None]], *, most_bytes: int = MOST_RECORD_BYTES
    ) -> tuple[bytes, Headers] | None:
        """The record for `tool-results` to a record of `tool-calls`; None if no tool of this set is called, or its time
        is over. Whatever a tool does, its call has one result: what has more than `most_bytes`, or than a record
        holds, is an error that the model reads.
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
        more = trace_headers_of(headers)
        try:
            encoded, own = encode(await _result(tool, call, left_s, most_bytes), format_of(headers))
        except MalformedError:
            log.exception("the result of call %s of %s cannot be written", call.tool_call_id, call.name)
            encoded, own = encode(_result_of(call, f"error: {call.name} failed", is_error=True), format_of(headers))
        if len(encoded) > MOST_RECORD_BYTES:
            why = f"the result of {call.name} is a record of {len(encoded)} bytes; it may have {MOST_RECORD_BYTES}"
            encoded, own = encode(_result_of(call, f"error: {why}", is_error=True), format_of(headers))
        return encoded, [*own, *more]


def refusal_of(value: bytes | None, headers: Iterable[tuple[str, bytes | None]], why: str) -> tuple[bytes, Headers]:
    """The record that says of a call why it has no result."""
    headers = tuple(headers)
    encoded, own = encode(_result_of(decode(ToolCallRecord, value, headers), why, is_error=True), format_of(headers))
    return encoded, [*own, *trace_headers_of(headers)]


async def _result(tool: Tool, call: ToolCallRecord, left_s: float, most_bytes: int) -> ToolResultRecord:
    """Whatever the tool raises is its call's result, also what ends a program (`sys.exit`) or cancels a task."""
    content, is_error = "", True
    current_call.set(call)
    try:
        async with asyncio.timeout(left_s):
            content, is_error = (await tool.call(call.arguments)).encode(errors="replace").decode(), False
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
        content, is_error = f"error: the result of {call.name} has {size} bytes; it may have {most_bytes}", True
    return _result_of(call, content, is_error=is_error)


def _words_of(error: ToolError) -> str:
    try:
        return shortened(f"error: {error}".encode(errors="replace").decode())
    except Exception:  # noqa: BLE001 - the words are a program's of its own
        return "error: the tool failed"


def _result_of(call: ToolCallRecord, content: str, *, is_error: bool) -> ToolResultRecord:
    return ToolResultRecord(
        tool_call_id=call.tool_call_id,
        request_id=call.request_id,
        user_id=call.user_id,
        content=content,
        is_error=is_error,
    )
