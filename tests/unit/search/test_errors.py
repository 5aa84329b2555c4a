from __future__ import annotations

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata
from pymilvus.exceptions import DataNotMatchException, MilvusException, ParamError

from app.search.milvus.connection import explain
from app.search.vector_store import IndexAwayError, IndexRefusedError


def rpc(status: grpc.StatusCode) -> AioRpcError:
    return AioRpcError(status, Metadata(), Metadata(), details="first line\nsecond line")


def wrapped(cause: Exception) -> MilvusException:
    error = MilvusException(message=f"Unexpected error, message=<{cause}>")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError(),
        ConnectionRefusedError("refused"),
        rpc(grpc.StatusCode.UNAVAILABLE),
        rpc(grpc.StatusCode.DEADLINE_EXCEEDED),
        rpc(grpc.StatusCode.RESOURCE_EXHAUSTED),
        rpc(grpc.StatusCode.UNAUTHENTICATED),
        MilvusException(code=1, message="something unknown"),
        MilvusException(code=2, message="cannot connect"),
        MilvusException(code=7, message="disk is full"),
        MilvusException(code=8, message="rate limit"),
        MilvusException(code=100, message="no such collection"),
        MilvusException(code=101, message="not loaded"),
        wrapped(RuntimeError("boom")),
    ],
)
def test_what_may_succeed_later_is_away(error: Exception) -> None:
    assert isinstance(explain(error), IndexAwayError)


@pytest.mark.parametrize(
    "error",
    [
        rpc(grpc.StatusCode.INVALID_ARGUMENT),
        rpc(grpc.StatusCode.UNIMPLEMENTED),
        MilvusException(code=6, message="too long"),
        MilvusException(code=1100, message="invalid parameter"),
        MilvusException(code=1804, message="bad rows", is_input_error=True),
        DataNotMatchException(message="a field is missing"),
        ParamError(message="wrong"),
        wrapped(OverflowError("int too large")),
    ],
)
def test_what_the_server_will_never_take_is_refused(error: Exception) -> None:
    assert isinstance(explain(error), IndexRefusedError)


def test_message_is_one_line_with_the_code() -> None:
    explained = explain(MilvusException(code=65, message="\n first \n second"))
    assert (str(explained), explained.code) == ("first", 65)
    assert str(explain(rpc(grpc.StatusCode.UNAVAILABLE))) == "UNAVAILABLE: first line"
