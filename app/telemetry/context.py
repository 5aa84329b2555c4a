"""The trace context of the current HTTP request, for the records written because of it."""

from __future__ import annotations

from contextvars import ContextVar

trace_headers: ContextVar[tuple[tuple[str, bytes], ...]] = ContextVar("trace_headers", default=())
"""Record headers, set by the gateway's middleware."""
