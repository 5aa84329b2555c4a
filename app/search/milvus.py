"""The connection to Milvus: every call has a deadline, and a broken connection is replaced by a new one.

A server that accepts and never answers hangs pymilvus even in its constructor, so that the deadline is kept out here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import grpc
from pymilvus import AsyncMilvusClient
from pymilvus.exceptions import MilvusException

from app.search.errors import COLLECTION_NOT_FOUND, COLLECTION_NOT_LOADED, MilvusAwayError, explain

# It logs every failed call with its whole stack; what matters of it is in our own errors.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL + 1)

_ANSWERED = (COLLECTION_NOT_FOUND, COLLECTION_NOT_LOADED)  # by a server that is well


class Milvus:
    """One connection, opened by its first call; for one event loop."""

    def __init__(self, uri: str, token: str = "", timeout_s: float = 10.0) -> None:
        self.uri = uri
        self._token = token
        self._timeout_s = timeout_s
        self._client: AsyncMilvusClient | None = None

    async def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """A method of `AsyncMilvusClient`. Raises `MilvusAwayError` or `MilvusRefusedError` only."""
        timeout = timeout_s or self._timeout_s
        try:
            async with asyncio.timeout(timeout):
                if self._client is None:
                    self._client = AsyncMilvusClient(self.uri, token=self._token, dedicated=True)
                return await getattr(self._client, method)(*args, timeout=timeout, **kwargs)
        except (TimeoutError, OSError, grpc.RpcError, MilvusException) as error:
            explained = explain(error)
            if isinstance(explained, MilvusAwayError) and explained.code not in _ANSWERED:
                await self.close()
            explained.args = (f"Milvus at {self.uri}: {explained} ({method})",)
            raise explained from error

    async def close(self) -> None:
        """Let the connection go; the next call opens another."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(TimeoutError, grpc.RpcError, MilvusException):
                async with asyncio.timeout(1):
                    await client.close()
