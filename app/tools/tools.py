"""The tools of `parley_client.tools`, with Parley's settings and both formats of its records."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from parley_client import tools

from app.settings import Settings, settings
from app.tools.serving import ToolServer
from app.wire.codec import decode, encode, format_of, trace_headers_of
from app.wire.error import WireError
from app.wire.json_codec import MalformedError
from app.wire.record_size import MAX_RECORD_BYTES
from app.wire.tool_records import ToolCallRecord, ToolResultRecord

if TYPE_CHECKING:
    import faust

log = logging.getLogger(__name__)

MOST_RECORD_BYTES = MAX_RECORD_BYTES - (16 << 10)
"""Of a result; the rest is for key, headers and the framing of a batch."""

Headers = list[tuple[str, bytes]]


class Tools(tools.Tools):
    """`parley_client.tools.Tools` by the settings of the environment, in JSON or Protobuf."""

    def run(self, group: str = "parley-tools") -> None:  # type: ignore[override]
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
        """As of `parley_client.tools.Tools`. What has more than `most_bytes`, or than a record holds, is an error that
        the model reads.
        """
        headers = tuple(headers)
        try:
            call = decode(ToolCallRecord, value, headers)
        except WireError as error:
            log.error("a record of tool-calls cannot be read: %s", error)
            return None
        if (left_s := self.left_s(call)) is None:
            return None
        content, is_error = await self.result_of(call, left_s, most_bytes)
        more = trace_headers_of(headers)
        try:
            encoded, own = encode(_result_of(call, content, is_error=is_error), format_of(headers))
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


def _result_of(call: ToolCallRecord, content: str, *, is_error: bool) -> ToolResultRecord:
    return ToolResultRecord(
        tool_call_id=call.tool_call_id,
        request_id=call.request_id,
        user_id=call.user_id,
        content=content,
        is_error=is_error,
    )
