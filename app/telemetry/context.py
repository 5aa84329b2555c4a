"""The trace context of the HTTP request at hand, for whatever is written to Kafka because of it."""

from __future__ import annotations

from contextvars import ContextVar

carried: ContextVar[tuple[tuple[str, bytes], ...]] = ContextVar("carried", default=())
"""Record headers, by `app.gateway` middleware."""
