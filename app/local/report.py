"""Progress lines of the local servers while they start."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

Report = Callable[[str], None]


def silent(_line: str) -> None:
    """Discards lines; for callers such as the tests."""


def timed(write: Report) -> Report:
    """Prefix each line with the seconds since now."""
    begun = monotonic()

    def report(line: str) -> None:
        write(f"[{monotonic() - begun:5.1f} s] {line}")

    return report
