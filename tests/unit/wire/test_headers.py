from __future__ import annotations

from app.wire.codec import MAX_TRACE_BYTES, trace_headers_of

PARENT = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")


def test_the_trace_context_is_carried_and_nothing_else() -> None:
    headers = [("content-type", b"x"), PARENT, ("tracestate", b"a=b"), ("traceparent", None)]
    assert trace_headers_of(headers) == (PARENT, ("tracestate", b"a=b"))


def test_a_context_that_would_burden_every_token_is_left_behind() -> None:
    assert trace_headers_of([PARENT, ("tracestate", b"x" * (MAX_TRACE_BYTES + 1))]) == (PARENT,)
    assert trace_headers_of([PARENT] * 100) == (PARENT,)
