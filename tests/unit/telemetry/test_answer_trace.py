"""The ids of an answer's spans, with OpenTelemetry's own propagator and sampler as the oracles."""

from __future__ import annotations

import random

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, generate_latest

from app.features.answer_trace import AnswerTrace
from app.settings import Settings
from app.telemetry.gen_ai_metrics import GenAiMetrics
from app.wire.error import ErrorCode
from app.wire.event import ErrorInfo, EventType, TokenEvent
from models.interface.generation import FinishReason
from tests.unit.delivery.inflight_requests import ASKED_AT, inflight_of, outcome_of

KEY = ("ann", "r1")
BROUGHT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_share_is_that_of_opentelemetrys_sampler(share: float) -> None:
    settings = Settings(_env_file=None, traces="otlp", traces_sample=share)
    sampler = TraceIdRatioBased(share)
    ids = [random.Random(one).getrandbits(128) for one in range(500)] + [1, (1 << 64) - 1, (1 << 128) - 1]
    for trace_id in ids:
        sampled = sampler.should_sample(None, trace_id, "x").decision is Decision.RECORD_AND_SAMPLE
        assert AnswerTrace(trace_id, None, True, ()).is_recorded(settings) is sampled


@pytest.mark.parametrize(
    "header",
    [
        BROUGHT,
        BROUGHT.removesuffix("01") + "00",
        "ff" + BROUGHT[2:],
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "rubbish",
    ],
)
def test_a_context_is_read_as_opentelemetry_reads_it(header: str) -> None:
    context = get_current_span(TraceContextTextMapPropagator().extract({"traceparent": header})).get_span_context()
    trace = AnswerTrace.of([("traceparent", header.encode())], KEY, 7)
    if context.is_valid:
        assert (trace.trace_id, trace.parent) == (context.trace_id, context.span_id)
        assert trace.is_sampled is context.trace_flags.sampled
    else:
        assert trace == AnswerTrace.of([], KEY, 7)


def test_the_ids_follow_from_the_answer_and_differ_by_what_they_name() -> None:
    trace, again = (AnswerTrace.of([], KEY, 7) for _ in range(2))
    assert trace == again
    assert trace.trace_id != AnswerTrace.of([], KEY, 8).trace_id
    assert trace.trace_id != AnswerTrace.of([], ("an", "nr1"), 7).trace_id
    ids = {trace.answer(KEY), trace.part(KEY, 1, 0), trace.part(KEY, 2, 0), trace.part(KEY, 1, 1), trace.call("c")}
    assert len(ids) == 5


def test_where_nothing_is_recorded_the_headers_of_the_caller_go_on() -> None:
    brought = (("traceparent", BROUGHT.encode()), ("tracestate", b"a=b"))
    trace = AnswerTrace.of(brought, KEY, 7)
    assert trace.headers_of_call(Settings(_env_file=None), "c") == brought
    recorded = dict(trace.headers_of_call(Settings(_env_file=None, traces="otlp", traces_sample=1.0), "c"))
    assert recorded["traceparent"].decode() == f"{BROUGHT[:36]}{trace.call('c'):016x}-01"
    assert recorded["tracestate"] == b"a=b"


def test_the_metrics_of_the_conventions() -> None:
    registry = CollectorRegistry()
    metrics = GenAiMetrics(registry, Settings(_env_file=None))
    done = TokenEvent(type=EventType.DONE, finish_reason=FinishReason.STOP, model_version="m@1")
    metrics.answered(
        0, outcome_of(inflight_of(), done, first_at=ASKED_AT + 50, ended_at=ASKED_AT + 90, index=3, gaps=[0.02, 0.02])
    )
    failed = TokenEvent(type=EventType.ERROR, error=ErrorInfo(ErrorCode.ENGINE_ERROR, "no"))
    metrics.answered(
        0, outcome_of(inflight_of(), failed, first_at=ASKED_AT + 50, ended_at=ASKED_AT + 90, index=3, gaps=[])
    )
    labels = {
        "gen_ai_operation_name": "chat",
        "gen_ai_provider_name": "parley",
        "gen_ai_request_model": "demo",
        "gen_ai_response_model": "m@1",
    }
    value, name = registry.get_sample_value, "gen_ai_server_"
    assert value(f"{name}request_duration_seconds_sum", labels | {"error_type": ""}) == pytest.approx(0.09)
    assert value(f"{name}time_to_first_token_seconds_sum", labels) == pytest.approx(0.05)
    assert value(f"{name}time_per_output_token_seconds_sum", labels) == pytest.approx(0.02)
    reported = generate_latest(registry).decode()
    assert 'error_type="engine_error"' in reported
    assert reported.count(f"{name}time_to_first_token_seconds_count") == 1
