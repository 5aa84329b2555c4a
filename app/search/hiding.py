"""Turns on their way to the writer: their private values are replaced by placeholders.

Each turn waits for its own verdict, so one without holds up no other, and no erasure. A search that fails is repeated a
few times; after that the turn is a dead letter, whose reason is in the log with its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection

from app.search.index import Hide, HideError
from app.search.intake import Write
from app.search.rows import rows_of
from tables.erasures import Scope

log = logging.getLogger(__name__)

MOST_TRIES = 5
_AT_ONCE = 8
PAUSE_S = 5.0


class Hiding:
    """`ready` is called with each turn that may be indexed."""

    def __init__(self, hide: Hide, ready: Callable[[Write], None]) -> None:
        self._hide = hide
        self._ready = ready
        self._waiting: deque[Write] = deque()
        self._running: dict[Write, asyncio.Task[None]] = {}
        self._pausing: dict[Write, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running) + len(self._pausing)

    @property
    def oldest(self) -> float | None:
        return min((write.since for write in self._all), default=None)

    @property
    def _all(self) -> tuple[Write, ...]:
        return (*self._waiting, *self._running, *self._pausing)

    def add(self, write: Write) -> None:
        self._waiting.append(write)
        while self._waiting and len(self._running) < _AT_ONCE:
            following = self._waiting.popleft()
            self._running[following] = asyncio.ensure_future(self._work(following))

    def forget(self, scope: Scope, until_ms: int) -> None:
        """Mark its turns up to that time as forgotten."""
        for write in self._all:
            write.forget(scope, until_ms)

    def revoke(self, partitions: Collection[int]) -> None:
        """Drop what came from these partitions; their next owner reads it again."""
        for write in self._all:
            if write.partition in partitions:
                write.revoked = True
        self._waiting = deque(write for write in self._waiting if not write.revoked)
        for write, task in self._running.items():
            if write.revoked:
                task.cancel()
        for write in [write for write in self._pausing if write.revoked]:
            self._pausing.pop(write).cancel()

    async def stop(self, grace_s: float) -> None:
        """Let what is under way end if that takes at most `grace_s`."""
        until = asyncio.get_running_loop().time() + grace_s
        while self._running and (left_s := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._running.values(), timeout=left_s)
        self.revoke({write.partition for write in self._all})
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _work(self, write: Write) -> None:
        try:
            await self._try(write)
        finally:
            del self._running[write]
            if self._waiting:
                self.add(self._waiting.popleft())

    async def _try(self, write: Write) -> None:
        if write.forgotten:
            write.done(None)
            return
        name = f"{write.turn.user_id}/{write.turn.request_id}"
        try:
            turn = await self._hide(write.partition, write.turn)
        except HideError as error:
            write.failures += 1
            if write.failures < MOST_TRIES:
                self._pausing[write] = asyncio.get_running_loop().call_later(PAUSE_S, self._again, write)
                return
            log.warning("turn %s is not indexed: no verdict about private values in %s tries", name, MOST_TRIES)
            write.done(f"not indexed: {error}")
        except Exception as error:
            log.warning("turn %s is not indexed: %s", name, type(error).__name__, exc_info=error)
            write.done(f"not indexed: {type(error).__name__}")
        else:
            if turn is not None:
                write.rows = rows_of(turn)
                self._ready(write)

    def _again(self, write: Write) -> None:
        del self._pausing[write]
        self.add(write)
