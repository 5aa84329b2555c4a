"""The collection as the writer uses it: a call returns when Milvus has done it, however long that takes.

After a failure the collection is opened again before the next call: a restarted server serves nothing that was not
loaded, and may have lost the collection or have another one. It is also checked at each flush, because `parley search
reindex` may have put another collection under the same name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app.search.backoff import Backoff
from app.search.collection import Layout, open_collection
from app.search.errors import CollectionMismatchError, MilvusAwayError, MilvusRefusedError
from app.search.filters import turns_where
from app.search.identity import Embeds, Identity
from app.search.milvus import Milvus

log = logging.getLogger(__name__)

_FLUSH_ROWS = 2000
_DELETE_TIMEOUT_S = 60.0


class Store:
    """For one task; `open` raises `CollectionMismatchError`."""

    def __init__(self, milvus: Milvus, collection: str, embedder: Embeds, flush_s: float) -> None:
        self.retries = 0
        self.flushes = 0
        self._milvus = milvus
        self._collection = collection
        self._embedder = embedder
        self._flush_s = flush_s
        self._patience = Backoff()
        self._identity: Identity | None = None
        self._layout: Layout | None = None
        self._opened = False
        self._unflushed = 0
        self.flush_due = time.monotonic() + flush_s

    @property
    def trouble(self) -> str:
        """Why the current call is being retried; empty if there is no failure."""
        return self._patience.trouble

    async def open(self) -> None:
        async def nothing(_layout: Layout) -> None:
            return

        await self._insist(nothing)
        self._opened = True

    async def upsert(self, rows: Sequence[dict[str, Any]], wanted: Callable[[dict[str, Any]], Awaitable[bool]]) -> None:
        """Write those rows that are still `wanted` right before each try.

        Raises `MilvusRefusedError` if the server rejects them.
        """

        async def upsert(layout: Layout) -> None:
            left = [row for row in rows if await wanted(row)]
            if not layout.asked_at:
                left = [{name: value for name, value in row.items() if name != "asked_at"} for row in left]
            if left:
                await self._milvus.call("upsert", self._collection, left)

        try:
            await self._insist(upsert)
        except MilvusRefusedError:
            self._layout = None  # if the collection has changed, the rows are not at fault
            raise
        self._unflushed += len(rows)

    async def delete(self, user_id: str, until_ms: int, ended_ms: int) -> None:
        """Delete the rows of what the user asked up to `until_ms`.

        Rows of older collections do not have the time of the request, only the end of the turn. There, everything that
        had ended by the time of the erasure, `ended_ms`, is deleted. Raises `MilvusRefusedError`.
        """

        async def delete(layout: Layout) -> None:
            if layout.asked_at:
                where = turns_where(user_id, asked_until_ms=until_ms)
            else:
                where = turns_where(user_id, before_ms=max(until_ms, ended_ms) + 1)
            await self._delete(where)

        await self._insist(delete)

    async def expire(self, before_ms: int) -> None:
        """Delete all turns that ended before that time; raises `MilvusRefusedError`."""

        async def expire(_layout: Layout) -> None:
            await self._delete(f"created_at < {before_ms:d}")

        await self._insist(expire)

    async def flush_if_due(self) -> None:
        """milvus-lite scans unflushed rows in Python; a server decides better by itself when to flush."""
        now = time.monotonic()
        if now < self.flush_due and self._unflushed < _FLUSH_ROWS:
            return
        self.flush_due = now + self._flush_s
        if not self._unflushed or self._layout is None:
            return
        layout, self._layout = self._layout, None
        self._unflushed = 0
        if not layout.lite:
            return
        try:
            await self._milvus.call("flush", self._collection)
        except (MilvusAwayError, MilvusRefusedError) as error:
            log.warning("history: %s; retrying later", error)
            return
        self.flushes += 1

    async def _delete(self, where: str) -> None:
        await self._milvus.call("delete", self._collection, filter=where, timeout_s=_DELETE_TIMEOUT_S)

    async def _insist(self, call: Callable[[Layout], Awaitable[Any]]) -> None:
        while True:
            try:
                if self._layout is None:
                    self._layout = await self._open()
                await call(self._layout)
            except MilvusAwayError as error:
                self._layout = None
                self.retries += 1
                await self._patience.wait(error)
            else:
                self._patience.over()
                return

    async def _open(self) -> Layout:
        if self._identity is None:
            self._identity = await Identity.of(self._embedder)
        try:
            return await open_collection(self._milvus, self._collection, self._identity, self._embedder.dimension)
        except MilvusRefusedError as error:
            raise MilvusAwayError(str(error), error.code) from error  # the rows were not rejected
        except CollectionMismatchError as error:
            if not self._opened:
                raise
            # Someone changed it under a running worker: answers continue, and turns wait for a restart.
            raise MilvusAwayError(str(error)) from error
