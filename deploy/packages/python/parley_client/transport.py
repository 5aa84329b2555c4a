"""What a client needs of the way to Parley."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any, Protocol

Record = dict[str, Any]
"""As JSON has it."""
Records = AsyncGenerator[tuple[int, int | None, Record], None]
"""Partition, offset and event, as `ReaderRule.read` takes them, which knows when the answer is over."""


class Transport(Protocol):
    """Each method raises `RefusedError` or `UnreachableError`."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def ask(self, request: dict[str, Any]) -> Records:
        """Send the request, which has its `request_id`, and return the records of its answer."""

    def follow(self, request_id: str, after: int) -> Records:
        """The records of an answer, from the index `after` on at least."""

    async def cancel(self, request_id: str) -> None: ...

    async def search(self, query: str, **filters: Any) -> list[dict[str, Any]]: ...

    async def conversations(self) -> list[str]:
        """The ids of the user's conversations."""

    async def turns(self, conversation: str) -> list[Record]:
        """Those of a conversation, oldest first; none where nobody answers that."""


def new_request_id() -> str:
    """A UUID of version 7: its time lets readers find its answer without reading a topic from the beginning."""
    bits = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    bits = bits & ~(0xF << 76) | 7 << 76
    return str(uuid.UUID(int=bits & ~(0x3 << 62) | 2 << 62))


def time_of(request_id: str) -> int | None:
    """When such an id was made, in Unix milliseconds; None for other ids."""
    try:
        made = uuid.UUID(request_id.partition(".")[0])
    except ValueError:
        return None
    return made.int >> 80 if made.version == 7 else None
