"""The vector store as the writer uses it: a call returns when it is done, however long that takes.

After a failure the collection is opened again before the next call: a restarted server serves nothing that was not
loaded, and may have lost the collection or have another one. It is also checked at each flush, because `parley search
reindex` may have put another collection under the same name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from app.search.vector_store import IndexAwayError, IndexMismatchError, IndexRefusedError, VectorStore
from models.embedder.embedder import Embeds
from tables.erasures import Scope

log = logging.getLogger(__name__)

_FLUSH_ROWS = 2000
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_WARN_EVERY_S = 60.0


class PatientStore:
    """For one task; `open` raises `IndexMismatchError`."""

    def __init__(self, vectors: VectorStore, embedder: Embeds, flush_s: float) -> None:
        self.retries = 0
        self.flushes = 0
        self._vectors = vectors
        self._embedder = embedder
        self._flush_s = flush_s
        self._backoff = _Backoff()
        self._is_open = False
        self._was_opened = False
        self._unflushed = 0
        self.flush_due = time.monotonic() + flush_s

    @property
    def trouble(self) -> str:
        """Why the current call is being retried; empty if there is no failure."""
        return self._backoff.trouble

    async def open(self) -> None:
        async def nothing() -> None:
            return

        await self._insist(nothing)
        self._was_opened = True

    async def upsert(self, rows: Sequence[dict[str, Any]], wanted: Callable[[dict[str, Any]], Awaitable[bool]]) -> None:
        """Write those rows that are still `wanted` right before each try.

        Raises `IndexRefusedError` if the server rejects them.
        """

        async def upsert() -> None:
            if left := [row for row in rows if await wanted(row)]:
                await self._vectors.upsert(left)

        try:
            await self._insist(upsert)
        except IndexRefusedError:
            self._is_open = False  # if the collection has changed, the rows are not at fault
            raise
        self._unflushed += len(rows)

    async def erase(self, scope: Scope, until_ms: int, ended_ms: int) -> None:
        """As of `VectorStore`; raises `IndexRefusedError`."""
        await self._insist(partial(self._vectors.erase, scope, until_ms, ended_ms))

    async def expire(self, before_ms: int) -> None:
        """As of `VectorStore`; raises `IndexRefusedError`."""
        await self._insist(partial(self._vectors.expire, before_ms))

    async def flush_if_due(self) -> None:
        now = time.monotonic()
        if now < self.flush_due and self._unflushed < _FLUSH_ROWS:
            return
        self.flush_due = now + self._flush_s
        if not self._unflushed or not self._is_open:
            return
        self._is_open = False
        self._unflushed = 0
        try:
            self.flushes += await self._vectors.flush()
        except (IndexAwayError, IndexRefusedError) as error:
            log.warning("index: %s; retrying later", error)

    async def close(self) -> None:
        await self._vectors.close()

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                if not self._is_open:
                    await self._open()
                    self._is_open = True
                await call()
            except IndexAwayError as error:
                self._is_open = False
                self.retries += 1
                await self._backoff.wait(error)
            else:
                self._backoff.over()
                return

    async def _open(self) -> None:
        try:
            await self._vectors.open(self._embedder)
        except IndexRefusedError as error:
            raise IndexAwayError(str(error), error.code) from error  # the rows were not rejected
        except IndexMismatchError as error:
            if not self._was_opened:
                raise
            # It was changed under a running worker: answers continue, and turns wait for a restart.
            raise IndexAwayError(str(error)) from error


class _Backoff:
    """Pauses between retries, logged once a minute instead of at each retry."""

    def __init__(self) -> None:
        self.trouble = ""
        self._pause_s = _FIRST_PAUSE_S
        self._since = 0.0
        self._warned_at = 0.0

    async def wait(self, error: Exception) -> None:
        now = time.monotonic()
        if not self.trouble:
            self._since = now
        if not self.trouble or now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            log.warning("index: %s; retrying, nothing is lost", error)
        self.trouble = str(error)
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)

    def over(self) -> None:
        if self.trouble:
            log.info("index: rows are accepted again, after %.0f s", time.monotonic() - self._since)
        self.trouble = ""
        self._pause_s = _FIRST_PAUSE_S
