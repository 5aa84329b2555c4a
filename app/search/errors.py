"""Errors of Milvus, by what to do next.

pymilvus raises gRPC errors, exceptions of its own with the server's codes, and plain timeouts. Two questions matter:
may the same call succeed later (`MilvusAwayError`), or is the call itself wrong (`MilvusRefusedError`)? An unknown
error counts as the former: writing a row late is better than losing it.
"""

from __future__ import annotations

import grpc
from pymilvus.exceptions import (
    DataNotMatchException,
    DataTypeNotMatchException,
    MilvusException,
    ParamError,
    PrimaryKeyException,
)

COLLECTION_NOT_FOUND = 100
COLLECTION_NOT_LOADED = 101

_WRONG_INPUT = (DataNotMatchException, DataTypeNotMatchException, ParamError, PrimaryKeyException)
# A server's parameter errors are 1100 to 1199; milvus-lite uses the code 6 for all errors.
_INPUT_CODES = frozenset({6, *range(1100, 1200)})


class MilvusError(Exception):
    """One line for people; `code` is the server's, if it sent one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class MilvusAwayError(MilvusError):
    """Unreachable, not answering, or not ready: the same call may succeed later."""


class MilvusRefusedError(MilvusError):
    """The server understood the call and will always reject it."""


class CollectionMismatchError(Exception):
    """The collection cannot hold these rows; the message is one line with the remedy."""


def explain(error: Exception) -> MilvusError:
    """Convert an exception of a call."""
    if isinstance(error, TimeoutError):
        return MilvusAwayError("no answer in time")
    if isinstance(error, grpc.RpcError):
        return _explain_rpc(error)
    if isinstance(error, MilvusException):
        message = _one_line(error.message)
        if message.startswith("Fail connecting"):
            return MilvusAwayError("cannot be reached", error.code)
        if _is_input_error(error):
            return MilvusRefusedError(message, error.code)
        return MilvusAwayError(message, error.code)
    return MilvusAwayError(f"{type(error).__name__}: {_one_line(str(error))}")


def _explain_rpc(error: grpc.RpcError) -> MilvusError:
    status, message = error.code(), _one_line(error.details() or "")
    message = f"{status.name}: {message}"
    if status in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED):
        return MilvusRefusedError(message)
    return MilvusAwayError(message)


def _is_input_error(error: MilvusException) -> bool:
    # pymilvus wraps an error in encoding a row into an exception of its own.
    wrapped = isinstance(error.__cause__, ValueError | TypeError | OverflowError)
    return error.is_input_error or wrapped or isinstance(error, _WRONG_INPUT) or error.code in _INPUT_CODES


def _one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"
