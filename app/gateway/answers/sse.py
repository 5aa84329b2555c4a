"""Server-sent events to a reader that may be slow, gone, or both.

A reader that accepts no data for a while is disconnected. It can continue with `Last-Event-ID`, here or at another
gateway; until then only the bytes in its socket are held. A stream ends when the token that opened it expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.gateway.answers.watch import Deadline
from app.gateway.edge.errors import ApiError
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.edge.slow_readers import parts_of, unsent
from app.gateway.edge.while_connected import until_gone

_encoder = msgspec.json.Encoder()
KEEP_ALIVE = b": waiting\n\n"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_LINE_ENDS = tuple((chr(code).encode(), b"\\u%04x" % code) for code in (0x85, 0x2028, 0x2029))
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def server_sent(content: object, *, event_id: int | None = None, name: str | None = None) -> bytes:
    """One event, with its content as JSON."""
    head = b"" if event_id is None else b"id: %d\n" % event_id
    head += b"" if name is None else b"event: %b\n" % name.encode()
    return b"%bdata: %b\n\n" % (head, _on_one_line(_encoder.encode(content)))


def _on_one_line(text: bytes) -> bytes:
    """JSON without characters that some readers of events take for the end of a line, as Python's `splitlines` does."""
    if text.isascii():
        return text
    for character, escaped in _LINE_ENDS:
        text = text.replace(character, escaped)
    return text


class CutError(Exception):
    """What a stream was to say cannot be said any more: its connection is cut, so that its reader does not take what it
    has for the whole.
    """


class EventStream(Response):
    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        stall_s: float,
        metrics: GatewayMetrics,
        closed: Callable[[], None],
        valid_s: float | None = None,
        headers: Mapping[str, str] = NO_HEADERS,
        media_type: str = media_type,
    ) -> None:
        """`valid_s`: seconds after which the stream is cut; None for never. `headers`: beside those of every stream."""
        super().__init__(headers={**_HEADERS, **headers}, media_type=media_type)
        del self.headers["content-length"]
        self._chunks = chunks
        self._stall_s = stall_s
        self._metrics = metrics
        self._closed = closed
        self._valid_s = valid_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(scope, send), name="event stream")
        leaving = asyncio.create_task(until_gone(receive), name="end of event stream")
        try:
            await asyncio.wait({sending, leaving}, timeout=self._valid_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not sending.done():
                sending.cancel()
            self._closed()
        try:
            await sending
        except asyncio.CancelledError:
            if not sending.cancelled():
                raise

    async def _send(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        task = asyncio.current_task()
        assert task is not None
        stall = Deadline(task.cancel)
        try:
            async with aclosing(self._chunks) as chunks:
                async for chunk in chunks:
                    with unsent(scope, len(chunk)):
                        for part, _ in parts_of(chunk):
                            stall.set(self._stall_s)
                            await send({"type": "http.response.body", "body": part, "more_body": True})
                            stall.clear()
        except CutError:
            return
        except ApiError:  # too much waits for readers of this caller: it can continue as one that has stalled
            self._metrics.stalled.inc()
            return
        except asyncio.CancelledError:
            if not stall.has_passed:
                raise
            task.uncancel()
            self._metrics.stalled.inc()
            return
        finally:
            stall.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
