"""OpenTelemetry, if `PARLEY_TRACES` enables it; otherwise nothing of it is imported.

The W3C context of a trace comes from an HTTP header at the gateway or a record header on `requests`; otherwise a trace
begins here. The headers of every token event and of the turn carry it on, so consumers can continue the trace.
Exporters are configured with OpenTelemetry's own variables, such as OTEL_EXPORTER_OTLP_ENDPOINT.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from app.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, SpanKind

    from app.telemetry.open_spans import OpenSpan

TraceHeaders = tuple[tuple[str, bytes], ...]
"""Record headers of a W3C trace context."""

trace_headers: ContextVar[TraceHeaders] = ContextVar("trace_headers", default=())
"""The context of the current HTTP request, for the records written because of it; set by the gateway's middleware."""


_QUEUE, _BATCH = 8192, 2048
"""Spans: an answer has some nine, so the SDK's 2,048 and 512 are two seconds of a busy worker and a post each."""
_OWN_SIZES = {"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"}


class TracingError(Exception):
    """Traces cannot be created with these settings; the message is one line."""


class Tracing:
    """Creates the spans of one service; `of` returns None if traces are off."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        from app.telemetry.open_spans import SpanMaker  # imports OpenTelemetry's SDK

        self._open = SpanMaker(provider)
        self._provider = provider
        self._tracer = provider.get_tracer("parley")
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def of(cls, settings: Settings, service: str) -> Tracing | None:
        """Raises `TracingError` if OpenTelemetry is not installed."""
        if settings.traces == "off":
            return None
        if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
            raise TracingError(
                f"PARLEY_TRACES={settings.traces} needs OpenTelemetry: install Parley with its extra `otel`"
            )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        # The caller's context determines the trace's id, but not whether it is recorded: recording costs us.
        share = TraceIdRatioBased(settings.traces_sample)
        provider = TracerProvider(
            sampler=ParentBased(root=share, remote_parent_sampled=share),
            resource=Resource.create({"service.name": service}),
            shutdown_on_exit=False,
        )
        queue, batch = (None, None) if _OWN_SIZES & os.environ.keys() else (_QUEUE, _BATCH)
        provider.add_span_processor(
            BatchSpanProcessor(_exporter(settings.traces), max_queue_size=queue, max_export_batch_size=batch)
        )
        return cls(provider)

    def start(self, name: str, kind: SpanKind, trace_headers: Iterable[tuple[str, bytes]], **options: Any) -> Span:
        """A span in the `trace_headers` context, or the first one of a trace."""
        parent = self._propagator.extract({key: value.decode("ascii", "replace") for key, value in trace_headers})
        return self._tracer.start_span(name, context=parent, kind=kind, **options)

    def begin(
        self,
        name: str,
        kind: SpanKind,
        trace_id: int,
        parent_id: int | None,
        span_id: int | None,
        *,
        linked: Sequence[tuple[int, int]] = (),
        start_time: int,
        attributes: Mapping[str, Any],
    ) -> OpenSpan:
        """A span of a sampled trace, with these ids, linked to these spans."""
        return self._open(name, kind, trace_id, parent_id, span_id, linked, start_time, dict(attributes))

    def child(self, parent: OpenSpan, name: str, began_ns: int, ended_ns: int, attributes: Mapping[str, Any]) -> None:
        """A finished part of `parent`."""
        self._open.part_of(parent, name, began_ns, dict(attributes)).end(max(began_ns, ended_ns))

    def carry(self, span: Span) -> TraceHeaders:
        """The headers that make later work a part of `span`."""
        from opentelemetry.trace import set_span_in_context

        headers: dict[str, str] = {}
        self._propagator.inject(headers, set_span_in_context(span))
        return tuple((name, value.encode("ascii", "replace")) for name, value in headers.items())

    def stop(self) -> None:
        """Export the rest; waits for a few seconds at most."""
        self._provider.force_flush(3000)
        self._provider.shutdown()


def _exporter(kind: str) -> SpanExporter:
    if kind == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(formatter=lambda span: span.to_json(indent=None) + "\n")
    if find_spec("opentelemetry.exporter") is None:
        raise TracingError(
            "PARLEY_TRACES=otlp needs the exporter of OpenTelemetry: install Parley with its extra `otel`"
        )
    from opentelemetry.exporter.otlp.proto.http import trace_exporter

    from app.telemetry.otlp_spans import EncodedSpans

    trace_exporter.encode_spans = EncodedSpans  # type: ignore[assignment, attr-defined]
    return trace_exporter.OTLPSpanExporter()
