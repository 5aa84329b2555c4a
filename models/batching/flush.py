"""What is told about a batch when it leaves: the figures behind the batching metrics."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FlushReason(enum.StrEnum):
    ROOM = "room"
    SIZE = "size"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Flush:
    """One batch that was handed over. `waits` are the seconds that each of its items waited."""

    reason: FlushReason
    waits: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.waits)
