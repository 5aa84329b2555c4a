"""The connection to Milvus: each call has a deadline, and a broken connection is replaced.

A server that accepts connections and never answers makes pymilvus hang even in its constructor, so the deadline is
enforced here.
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

# It logs the stack of every failed call; our own errors contain what matters.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL + 1)

# pymilvus pings idle connections every 10 s. Servers allow one in 5 minutes, and end the connection.
_RARE_PINGS = {"grpc.keepalive_time_ms": 60_000, "grpc.keepalive_permit_without_calls": False}

_ANSWERED = (COLLECTION_NOT_FOUND, COLLECTION_NOT_LOADED)  # by a healthy server


class Milvus:
    """One connection, opened by its first call; for one event loop."""

    def __init__(self, uri: str, token: str = "", timeout_s: float = 10.0) -> None:
        self.uri = uri
        self._token = token
        self._timeout_s = timeout_s
        self._client: AsyncMilvusClient | None = None

    async def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Call a method of `AsyncMilvusClient`. Raises only `MilvusAwayError` or `MilvusRefusedError`."""
        timeout = timeout_s or self._timeout_s
        try:
            async with asyncio.timeout(timeout):
                if self._client is None:
                    self._client = AsyncMilvusClient(
                        self.uri, token=self._token, dedicated=True, grpc_options=_RARE_PINGS
                    )
                return await getattr(self._client, method)(*args, timeout=timeout, **kwargs)
        except (TimeoutError, OSError, grpc.RpcError, MilvusException) as error:
            explained = explain(error)
            if isinstance(explained, MilvusAwayError) and explained.code not in _ANSWERED:
                await self.close()
            explained.args = (f"Milvus at {self.uri}: {explained} ({method})",)
            raise explained from error

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(TimeoutError, grpc.RpcError, MilvusException):
                async with asyncio.timeout(1):
                    await client.close()
