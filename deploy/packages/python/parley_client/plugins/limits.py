"""What holds for plug-ins of all kinds."""

from __future__ import annotations

BOUND_S = 10.0
"""Seconds that one call may take. Of an engine: from one piece of text to the next."""
MOST_DECISION_BYTES = 64 << 10
"""Of a feature's decision about one answer, as JSON."""


class Refused(Exception):  # noqa: N818 - no failure: it is what the sender reads
    """The request ends as `invalid_request`, with this message of one line."""


class RateLimited(Refused):
    """The request ends as `rate_limited`: its sender may try again later."""
