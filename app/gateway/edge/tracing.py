"""Middleware that continues or starts a trace for every HTTP request, and adds it to the records sent to Kafka.

If traces are off, the client's trace context is still passed on, so that the client can connect its own spans.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.gateway.edge.http import Middleware
from app.telemetry.tracing import TraceHeaders, Tracing, trace_headers
from app.wire.codec import trace_headers_of


class HttpTraces(Middleware):
    kinds = frozenset({"http"})

    def __init__(self, app: ASGIApp, tracing: Tracing | None) -> None:
        super().__init__(app)
        self._tracing = tracing

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        brought = _brought(scope)
        if self._tracing is None:
            trace_headers.set(brought)
            await self._app(scope, receive, send)
        elif scope["path"] in {"/healthz", "/readyz", "/metrics"}:
            await self._app(scope, receive, send)
        else:
            await self._traced(self._tracing, brought, scope, receive, send)

    async def _traced(
        self, tracing: Tracing, brought: TraceHeaders, scope: Scope, receive: Receive, send: Send
    ) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        span = tracing.start(scope["method"], SpanKind.SERVER, brought)
        trace_headers.set(tracing.carry(span) if span.is_recording() else brought)

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                span.set_attribute("http.response.status_code", message["status"])
                if message["status"] >= 500:
                    span.set_status(Status(StatusCode.ERROR))
            await send(message)

        try:
            await self._app(scope, receive, send_and_count)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            span.update_name(f"{scope['method']} {route}")
            span.set_attributes({"http.request.method": scope["method"], "http.route": route})
            span.end()


def _brought(scope: Scope) -> TraceHeaders:
    return trace_headers_of((name.decode("latin-1"), value) for name, value in scope["headers"])
