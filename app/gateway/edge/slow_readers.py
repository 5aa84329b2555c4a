"""What waits in memory for readers that are slow.

A connection's send buffer holds a small reply, or a small piece of a stream. What is larger counts against the share of
its caller's key (`Gateway.replies`) until it has left in parts, each behind the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.gateway.edge.bounds import STALL_S

PART_BYTES = 64 * 1024


@contextmanager
def unsent(scope: Scope, size: int) -> Iterator[None]:
    """While that much is sent to the reader; raises `ApiError` if it would be too much."""
    if size <= PART_BYTES:
        yield
        return
    caller = scope["state"].get("caller")
    with scope["app"].state.gateway.replies.body("" if caller is None else caller.holder) as held:
        held.add(size)
        yield


def parts_of(whole: bytes | memoryview) -> Iterator[tuple[bytes, bool]]:
    """Parts, and whether it is the last one; an empty one for nothing."""
    for first in range(0, max(1, len(whole)), PART_BYTES):
        yield bytes(whole[first : first + PART_BYTES]), first + PART_BYTES >= len(whole)


class JsonReply(Response):
    """A plain reply: a large one leaves in parts, and a reader that accepts none for a while is cut."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self.body) <= PART_BYTES:
            await super().__call__(scope, receive, send)
            return
        if scope["method"] != "GET":
            scope["state"]["done"] = self.headers.get("x-request-id", "")
        with unsent(scope, len(self.body)):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                for part, is_last in parts_of(self.body):
                    async with asyncio.timeout(STALL_S):
                        await send({"type": "http.response.body", "body": part, "more_body": not is_last})
            except TimeoutError:
                scope["app"].state.gateway.metrics.stalled.inc()
