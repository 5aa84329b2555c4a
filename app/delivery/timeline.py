"""When a request passed each point on its way through a worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Timeline:
    """Unix nanoseconds; None for a point that the request has not passed.

    arrived: Its record reached the partition's owner.
    started: No earlier request of its conversation was open; by the broker's clock.
    batched: Its batch was submitted to the engine.
    admitted: The engine began its prefill.
    """

    arrived: int = field(default_factory=time.time_ns)
    started: int | None = None
    batched: int | None = None
    admitted: int | None = None


def milliseconds(at: int | None) -> int | None:
    """A point of the timeline in the unit of records."""
    return None if at is None else at // 1_000_000
