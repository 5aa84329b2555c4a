"""What is reported of each flushed batch, for metrics."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FlushReason(enum.StrEnum):
    ROOM = "room"
    SIZE = "size"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Flush:
    """One flushed batch. `waits` are the seconds that each of its items waited."""

    reason: FlushReason
    waits: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.waits)
