"""Spans as bytes: those of OpenTelemetry's own encoder, which is the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from app.telemetry.otlp_spans import EncodedSpans
from app.telemetry.tracing import Tracing, _exporter

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
INTS = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    INTS,
    st.floats(allow_nan=False),
    st.binary(max_size=20),
    *(st.lists(one, max_size=3) for one in (TEXTS, st.booleans(), INTS)),
)
ATTRIBUTES = st.dictionaries(st.text("abc._", min_size=1, max_size=20), VALUES, max_size=8)


@st.composite
def contexts(draw: st.DrawFn, is_remote: bool = False) -> SpanContext:
    ids = draw(st.integers(1, (1 << 128) - 1)), draw(st.integers(1, (1 << 64) - 1))
    state = draw(st.lists(st.sampled_from([("a", "1"), ("b", "x")]), unique_by=lambda pair: pair[0]))
    return SpanContext(*ids, is_remote, TraceFlags(1), TraceState(state))


@st.composite
def spans(draw: st.DrawFn) -> ReadableSpan:
    began = draw(st.integers(0, (1 << 63) - 1))
    return ReadableSpan(
        draw(TEXTS),
        draw(contexts()),
        draw(st.none() | contexts() | contexts(is_remote=True)),
        Resource({"service.name": "x", "replicas": 3}, "https://schema.example"),
        draw(ATTRIBUTES),
        (),
        [Link(draw(contexts(is_remote=True)), draw(ATTRIBUTES)) for _ in range(draw(st.integers(0, 2)))],
        draw(st.sampled_from(SpanKind)),
        status=draw(st.sampled_from([Status(), Status(StatusCode.ERROR, "late"), Status(StatusCode.OK)])),
        start_time=began,
        end_time=began + draw(st.integers(0, 10**12)),
    )


def same(told: Sequence[ReadableSpan]) -> None:
    ours = ExportTraceServiceRequest.FromString(EncodedSpans(told).SerializePartialToString())
    assert ours == encode_spans(told)


@given(spans())
def test_any_span_is_as_the_library_writes_it(span: ReadableSpan) -> None:
    same([span])


def exported(make: Any) -> Sequence[ReadableSpan]:
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    make(Tracing(provider))
    return exporter.get_finished_spans()


def an_answer(tracing: Tracing) -> None:
    attributes = {"gen_ai.request.model": "m", "gen_ai.usage.output_tokens": 300, "resumed": False, "share": 0.5}
    span = tracing.begin(
        "process requests", SpanKind.CONSUMER, 1 << 100, 5, 6, linked=[(7, 8)], start_time=1, attributes=attributes
    )
    span.set_attributes({"gen_ai.response.finish_reasons": ["stop"]})
    span.add_event("first token", timestamp=2)
    span.status = Status(StatusCode.ERROR, "engine_error")
    for stage in ("batch", "schedule", "prefill", "decode"):
        tracing.child(span, stage, 1, 2, {})
    span.end(9)


def test_spans_of_a_worker_and_of_the_library_go_in_one_request() -> None:
    def make(tracing: Tracing) -> None:
        an_answer(tracing)
        with_event = tracing.start("sent", SpanKind.SERVER, ())
        with_event.add_event("read", {"bytes": 3})
        with_event.end()

    told = exported(make)
    ours = ExportTraceServiceRequest.FromString(EncodedSpans(told).SerializePartialToString())
    theirs = encode_spans(told)
    assert sorted(map(str, _spans_of(ours))) == sorted(map(str, _spans_of(theirs)))
    assert {str(one.resource) for one in ours.resource_spans} == {str(one.resource) for one in theirs.resource_spans}


def _spans_of(request: ExportTraceServiceRequest) -> list[Any]:
    return [span for part in request.resource_spans for scope in part.scope_spans for span in scope.spans]


def test_the_exporter_sends_these_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for its encoder by this name."""
    monkeypatch.setattr(trace_exporter, "encode_spans", encode_spans)
    sent: list[bytes] = []
    exporter: Any = _exporter("otlp")
    monkeypatch.setattr(exporter._client, "export", lambda data: sent.append(data) or _Success())
    told = exported(an_answer)
    exporter.export(told)
    assert sent == [EncodedSpans(told).SerializePartialToString()]
    exporter.shutdown()


class _Success:
    success = True
