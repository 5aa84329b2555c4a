"""Spans as an exporter gets them, and what traces cost where they are off."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from app.delivery.accepted import Former
from app.delivery.inflight import InFlight, Outcome, Timeline
from app.delivery.record import TURNS, Record
from app.settings import Settings
from app.telemetry.request_traces import RequestTraces
from app.telemetry.tracing import Tracing, TracingError
from app.wire.error import ErrorCode
from app.wire.event import NO_PLAN, ErrorInfo, EventType, Plan, TokenEvent
from app.wire.turn import Turn
from models.interface.generation import FinishReason, Usage
from tests.unit.delivery.inflight_requests import ASKED_AT, answer_with, inflight_of, outcome_of

SETTINGS = Settings(_env_file=None, traces="otlp", traces_sample=1.0)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(exporter: InMemorySpanExporter) -> RequestTraces:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return RequestTraces(Tracing(provider), SETTINGS)


def outcome(
    inflight: InFlight, end: TokenEvent, *, plan: Plan = NO_PLAN, first_at: int | None = ASKED_AT + 50
) -> Outcome:
    return outcome_of(inflight, end, plan=plan, first_at=first_at, ended_at=ASKED_AT + 90, index=3)


def test_a_refused_request_has_no_prefill_and_the_status_of_its_error(
    traces: RequestTraces, exporter: InMemorySpanExporter
) -> None:
    inflight = inflight_of(model="other")
    inflight.timeline = Timeline(arrived=(ASKED_AT + 1) * 1_000_000, started=(ASKED_AT + 2) * 1_000_000)
    traces.admitted(0, inflight)
    end = TokenEvent(type=EventType.ERROR, error=ErrorInfo(ErrorCode.MODEL_NOT_FOUND, "no"))
    traces.answered(0, outcome(inflight, end, first_at=None))
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"queue", "wait", "refuse", "commit", "process requests"}
    process = spans["process requests"]
    assert not process.status.is_ok
    assert process.attributes is not None
    assert process.attributes["error.type"] == "model_not_found"


def test_a_resumed_answer_is_a_trace_of_the_same_request_without_a_first_token_of_its_own(
    traces: RequestTraces, exporter: InMemorySpanExporter
) -> None:
    inflight = inflight_of(Former(answer_with("a", "b")))
    begun = ASKED_AT * 1_000_000
    inflight.timeline = Timeline(begun, started=begun + 2_000_000, batched=begun, admitted=begun + 95_000_000)
    traces.admitted(0, inflight)
    end = TokenEvent(type=EventType.DONE, finish_reason=FinishReason.STOP, usage=Usage(5, 3))
    traces.answered(0, outcome(inflight, end))
    chat = exporter.get_finished_spans()[-1]
    assert chat.attributes is not None
    assert chat.attributes["parley.resumed"] is True
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert "prefill" not in spans
    assert spans["commit"].start_time == spans["decode"].end_time == begun + 95_000_000, "the broker's clock is behind"


def test_what_was_decided_about_an_answer_is_on_its_span(traces: RequestTraces, exporter: InMemorySpanExporter) -> None:
    inflight = inflight_of()
    plan = Plan(model="small", route="trial", experiment="tone", arm="small", from_index=7)
    traces.admitted(0, inflight)
    traces.answered(0, outcome(inflight, TokenEvent(type=EventType.DONE, finish_reason=FinishReason.STOP), plan=plan))
    found = exporter.get_finished_spans()[-1].attributes or {}
    names = ("route", "experiment", "arm", "taken_over_at", "cached")
    assert [found.get(f"parley.{name}") for name in names] == ["trial", "tone", "small", 7, None]


def test_the_index_joins_the_trace_that_the_turn_carries(traces: RequestTraces, exporter: InMemorySpanExporter) -> None:
    inflight = inflight_of()
    traces.admitted(0, inflight)
    turn = Turn(
        request_id="r1",
        user_id="ann",
        conversation_id="default",
        prompt="secret",
        answer="secret",
        finish_reason=FinishReason.STOP,
        usage=Usage(1, 1),
        model_version="m@1",
        created_at=ASKED_AT,
    )
    traces.indexed(Record(TURNS, 0, 7, ASKED_AT, b"ann", b"", inflight.trace_headers), turn, ASKED_AT * 1_000_000)
    (index,) = exporter.get_finished_spans()
    assert index.name == "index m@1"
    assert index.parent is not None
    assert f"{index.parent.span_id:016x}" in inflight.trace_headers[0][1].decode()
    traces.indexed(Record(TURNS, 0, 8, ASKED_AT, b"ann", b""), turn, ASKED_AT * 1_000_000)
    assert len(exporter.get_finished_spans()) == 1, "a turn of no trace begins none"


def test_nothing_that_was_said_is_in_a_span(traces: RequestTraces, exporter: InMemorySpanExporter) -> None:
    inflight = inflight_of(prompt="what-was-asked", metadata={"note": "what-was-asked"}, stop="what-was-asked")
    traces.admitted(0, inflight)
    end = TokenEvent(type=EventType.DONE, finish_reason=FinishReason.STOP, text="answer")
    traces.answered(0, outcome(inflight, end))
    assert all("what-was-asked" not in span.to_json() for span in exporter.get_finished_spans())


class Collector(BaseHTTPRequestHandler):
    """Takes what an exporter sends."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        return None


def test_otlp_sends_to_where_the_variables_of_opentelemetry_say(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:{server.server_port}/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    try:
        tracing = Tracing.of(SETTINGS.model_copy(update={"traces": "otlp", "traces_sample": 1.0}), "parley-test")
        assert tracing is not None
        tracing.start("sent", SpanKind.CONSUMER, ()).end()
        tracing.stop()
    finally:
        server.shutdown()
        server.server_close()
    (body,) = Collector.bodies
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"] == "parley-test"
    (span,) = resource.scope_spans[0].spans
    assert (span.name, span.kind) == ("sent", ProtoSpan.SPAN_KIND_CONSUMER)


def test_traces_without_opentelemetry_stop_the_start_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.telemetry.tracing.find_spec", lambda _name: None)
    with pytest.raises(TracingError, match=r"needs OpenTelemetry: install Parley with its extra `otel`"):
        Tracing.of(SETTINGS.model_copy(update={"traces": "console"}), "x")


def test_where_traces_are_off_nothing_of_opentelemetry_is_imported() -> None:
    code = (
        "import sys\n"
        "from app.settings import Settings\n"
        "from app.telemetry.telemetry import Telemetry\n"
        "Telemetry(Settings(_env_file=None), lambda: None)\n"
        "worker = 'opentelemetry' in sys.modules\n"
        "import app.gateway.application\n"  # FastAPI looks for OpenTelemetry's API by itself
        "sys.exit(worker or 'opentelemetry.sdk' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


@pytest.mark.parametrize(
    "trace_headers",
    [(), (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)],
    ids=["no context", "a caller that asks for a sample"],
)
def test_the_share_of_the_settings_decides_what_is_sampled(trace_headers: tuple[tuple[str, bytes], ...]) -> None:
    for share, is_sampled in ((0.0, False), (1.0, True)):
        tracing = Tracing.of(SETTINGS.model_copy(update={"traces": "console", "traces_sample": share}), "parley-test")
        assert tracing is not None
        span = tracing.start("chat", SpanKind.CONSUMER, trace_headers)
        assert span.is_recording() is is_sampled
        span.end()
        tracing.stop()


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"prompt": "hello"}, False),
        ({"prompt": "my agent says hello"}, False),
        ({"prompt": "hello", "agent": "refunds"}, True),
        (b'{"request_id": "r1", "user_id": "ann", "prompt": "x", "\\u0061gent": "refunds"}', True),
    ],
)
def test_the_agent_that_a_record_names_is_above_its_parts(
    traces: RequestTraces, exporter: InMemorySpanExporter, request_: dict[str, Any] | bytes, named: bool
) -> None:
    inflight = inflight_of()
    value = request_ if isinstance(request_, bytes) else json.dumps({"request_id": "r1", "user_id": "ann"} | request_)
    record = dataclasses.replace(inflight.accepted.record, value=value if isinstance(value, bytes) else value.encode())
    inflight.accepted = dataclasses.replace(inflight.accepted, record=record)
    traces.admitted(0, inflight)
    traces.answered(0, outcome(inflight, TokenEvent(type=EventType.DONE, finish_reason=FinishReason.STOP)))
    assert ("invoke_agent refunds" in {span.name for span in exporter.get_finished_spans()}) is named
