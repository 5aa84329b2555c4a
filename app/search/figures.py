"""What the writer tells about itself, for metrics and health."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Figures:
    """Counters grow for ever. `lag_s` is the age of the oldest turn that waits; `trouble` is empty when all is well."""

    rows: int = 0
    batches: int = 0
    rejected: int = 0
    erasures: int = 0
    retries: int = 0
    flushes: int = 0
    backlog: int = 0
    lag_s: float = 0.0
    trouble: str = ""
