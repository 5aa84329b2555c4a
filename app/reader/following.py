"""One reader's position in one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from app.reader.rule import Update


class Following:
    """The updates of one answer, up to its end; `close` it if you leave before the end."""

    def __init__(self, detach: Callable[[Following], None]) -> None:
        self._queue: asyncio.Queue[Update | Exception] = asyncio.Queue()
        self._detach = detach
        self._over = False

    def put(self, update: Update | Exception) -> None:
        self._queue.put_nowait(update)

    def close(self) -> None:
        self._over = True
        self._detach(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Update:
        if self._over:
            raise StopAsyncIteration
        update = await self._queue.get()
        if isinstance(update, Exception):
            self.close()
            raise update
        if update.event.is_end:
            self.close()
        return update
