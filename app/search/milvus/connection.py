"""The connection to Milvus: each call has a deadline, a broken connection is replaced, and errors are sorted.

A server that accepts connections and never answers makes pymilvus hang even in its constructor, so the deadline is
enforced here. It raises gRPC errors, exceptions of its own with the server's codes, and plain timeouts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import grpc
from pymilvus import AsyncMilvusClient
from pymilvus.exceptions import (
    DataNotMatchException,
    DataTypeNotMatchException,
    MilvusException,
    ParamError,
    PrimaryKeyException,
)

from app.search.vector_store import IndexAwayError, IndexRefusedError, SearchError

# It logs the stack of every failed call; our own errors contain what matters.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL + 1)

# pymilvus pings idle connections every 10 s. Servers allow one in 5 minutes, and end the connection.
_RARE_PINGS = {"grpc.keepalive_time_ms": 60_000, "grpc.keepalive_permit_without_calls": False}

COLLECTION_NOT_FOUND = 100
COLLECTION_NOT_LOADED = 101
_WRONG_INPUT = (DataNotMatchException, DataTypeNotMatchException, ParamError, PrimaryKeyException)
# A server's parameter errors are 1100 to 1199; milvus-lite uses the code 6 for all errors.
_INPUT_CODES = frozenset({6, *range(1100, 1200)})
_ANSWERED = (COLLECTION_NOT_FOUND, COLLECTION_NOT_LOADED)  # by a healthy server


class Milvus:
    """One connection, opened by its first call; for one event loop."""

    def __init__(self, uri: str, token: str = "", timeout_s: float = 10.0) -> None:
        self.uri = uri
        self._token = token
        self._timeout_s = timeout_s
        self._client: AsyncMilvusClient | None = None

    async def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Call a method of `AsyncMilvusClient`. Raises only `IndexAwayError` or `IndexRefusedError`."""
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
            if isinstance(explained, IndexAwayError) and explained.code not in _ANSWERED:
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


def explain(error: Exception) -> SearchError:
    """Convert an exception of a call."""
    if isinstance(error, TimeoutError):
        return IndexAwayError("no answer in time")
    if isinstance(error, grpc.RpcError):
        return _explain_rpc(error)
    if isinstance(error, MilvusException):
        message = _one_line(error.message)
        if message.startswith("Fail connecting"):
            return IndexAwayError("cannot be reached", error.code)
        if _is_input_error(error):
            return IndexRefusedError(message, error.code)
        return IndexAwayError(message, error.code)
    return IndexAwayError(f"{type(error).__name__}: {_one_line(str(error))}")


def _explain_rpc(error: grpc.RpcError) -> SearchError:
    status, message = error.code(), _one_line(error.details() or "")
    message = f"{status.name}: {message}"
    if status in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED):
        return IndexRefusedError(message)
    return IndexAwayError(message)


def _is_input_error(error: MilvusException) -> bool:
    # pymilvus wraps an error in encoding a row into an exception of its own.
    wrapped = isinstance(error.__cause__, ValueError | TypeError | OverflowError)
    return error.is_input_error or wrapped or isinstance(error, _WRONG_INPUT) or error.code in _INPUT_CODES


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"
