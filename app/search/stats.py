"""Statistics of the writer, for metrics and health."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class WriterStats:
    """Counters never decrease. `lag_s` is the age of the oldest waiting turn; `trouble` is empty if there is none."""

    rows: int = 0
    batches: int = 0
    rejected: int = 0
    erasures: int = 0
    retries: int = 0
    flushes: int = 0
    backlog: int = 0
    lag_s: float = 0.0
    trouble: str = ""


@dataclass(slots=True)
class RecallStats:
    """Look-ups by their outcome (`found`, `nothing`, `late`, `away`), and the seconds that they took in all."""

    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("found", "nothing", "late", "away"), 0))
    seconds: float = 0.0
