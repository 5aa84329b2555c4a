"""The collection as the writer sees it: a call comes back when Milvus has done it, however long that takes.

After any trouble the collection is opened anew before the next call: a server that has restarted serves nothing that
was not loaded, and may have lost the collection or got another one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from app.search.collection import Layout, open_collection
from app.search.errors import MilvusAwayError, MilvusRefusedError
from app.search.filters import turns_where
from app.search.milvus import Milvus
from app.search.patience import Patience

log = logging.getLogger(__name__)

_FLUSH_ROWS = 2000
_DELETE_TIMEOUT_S = 60.0


class Store:
    """For one task; every method may raise `CollectionMismatchError`."""

    def __init__(self, milvus: Milvus, collection: str, dimension: int, flush_s: float) -> None:
        self.retries = 0
        self.flushes = 0
        self._milvus = milvus
        self._collection = collection
        self._dimension = dimension
        self._flush_s = flush_s
        self._patience = Patience()
        self._layout: Layout | None = None
        self._unflushed = 0
        self.flush_due = time.monotonic() + flush_s

    @property
    def trouble(self) -> str:
        """Why the call in hand is tried again; empty when all is well."""
        return self._patience.trouble

    async def open(self) -> None:
        async def nothing() -> None:
            return

        await self._insist(nothing)

    async def upsert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Raises `MilvusRefusedError` when the server will never take them all."""
        try:
            await self._insist(lambda: self._milvus.call("upsert", self._collection, [*rows]))
        except MilvusRefusedError:
            self._layout = None  # if it is the collection that has changed, no row is to blame
            raise
        self._unflushed += len(rows)

    async def delete(self, user_id: str, until_ms: int) -> None:
        where = turns_where(user_id, before_ms=until_ms + 1)

        async def delete() -> None:
            try:
                await self._milvus.call("delete", self._collection, filter=where, timeout_s=_DELETE_TIMEOUT_S)
            except MilvusRefusedError as error:
                raise MilvusAwayError(str(error), error.code) from error  # an erasure cannot be put aside

        await self._insist(delete)

    async def flush_if_due(self) -> None:
        """milvus-lite scans in Python what is not flushed; a server knows better when to."""
        now = time.monotonic()
        if now < self.flush_due and self._unflushed < _FLUSH_ROWS:
            return
        self.flush_due = now + self._flush_s
        if not self._unflushed or self._layout is None or not self._layout.lite:
            return
        try:
            await self._milvus.call("flush", self._collection)
        except (MilvusAwayError, MilvusRefusedError) as error:
            self._layout = None
            log.warning("history: %s; trying again later", error)
            return
        self._unflushed = 0
        self.flushes += 1

    async def _insist(self, call: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                if self._layout is None:
                    self._layout = await self._open()
                await call()
            except MilvusAwayError as error:
                self._layout = None
                self.retries += 1
                await self._patience.wait(error)
            else:
                self._patience.over()
                return

    async def _open(self) -> Layout:
        try:
            return await open_collection(self._milvus, self._collection, self._dimension)
        except MilvusRefusedError as error:
            raise MilvusAwayError(str(error), error.code) from error  # it is not the row that was refused
