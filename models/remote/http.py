"""The HTTP client for servers of others: what they send back is bounded, and they send nobody elsewhere.

A redirect would repeat the request, with its prompt, to any address that the server names. A compressed body has no
bound, and neither has a line of an event stream or the body of an error, so all three are limited where they arrive.
A server may write faster than is read: others have a turn of the event loop in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import cache
from importlib import import_module
from typing import Any

MOST_BYTES = 1 << 20
"""Of a body that is no event stream, and of one event."""
_TURN_S = 0.002
"""How long what is there already is read in one turn of the loop."""


class ServerMisbehaved(ValueError):  # noqa: N818  what happened, as its readers say it
    """The server sends what was not asked for; the message is one line and quotes nothing of it."""


def client_of(timeout: Any) -> Any:
    """A client for `openai`, with its own settings otherwise. Raises `ModuleNotFoundError` if that is missing.

    It reads by aiohttp, whose parser is compiled: half of the processor time of a streamed answer was httpx's.
    """
    import openai

    given = {
        "timeout": timeout,
        "follow_redirects": False,
        "headers": {"Accept-Encoding": "identity"},
        "event_hooks": {"response": [_bound]},
    }
    try:
        return openai.DefaultAioHttpClient(**given)
    except RuntimeError:  # an older version, which wants one more package for it
        return openai.DefaultAsyncHttpxClient(**given)


async def _bound(response: Any) -> None:
    if response.headers.get("content-encoding", "").strip().lower() not in {"", "identity"}:
        raise ServerMisbehaved("the server compresses although it was asked not to")
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    response.stream = _stream_type()(response.stream, is_stream=is_stream)


class _Bounded:
    """Raises `ServerMisbehaved` beyond the limit: that of an event, which an empty line ends, or of all."""

    def __init__(self, stream: Any, *, is_stream: bool) -> None:
        self._stream = stream
        self._is_stream = is_stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, last, began = 0, b"", time.monotonic()
        async for part in self._stream:
            if time.monotonic() - began > _TURN_S:
                await asyncio.sleep(0)
                began = time.monotonic()
            whole = last + part
            end = max(map(whole.rfind, (b"\n\n", b"\r\n\r\n", b"\r\r"))) if self._is_stream else -1
            size = len(whole) - end if end >= 0 else size + len(part)
            if size > MOST_BYTES:
                raise ServerMisbehaved(f"the server sends more than {MOST_BYTES} bytes at once")
            last = whole[-3:]
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


@cache
def _stream_type() -> type:
    """The class of streams that openai's client knows: which package it uses depends on its version."""
    import openai

    package = import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
    return type("BoundedStream", (_Bounded, package.AsyncByteStream), {})
