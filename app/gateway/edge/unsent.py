"""What waits in memory for readers that are slow.

A connection's send buffer holds a small reply, or a small piece of a stream. What is larger counts against the share of
its caller's key (`Gateway.replies`) until it has left in parts, each behind the one before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Scope

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
