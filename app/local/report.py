"""What the local parts tell while they start."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

Report = Callable[[str], None]


def silent(_line: str) -> None:
    """For callers that have nobody to tell, such as the tests."""


def timed(write: Report) -> Report:
    """Put the seconds since now before each line."""
    begun = monotonic()

    def report(line: str) -> None:
        write(f"[{monotonic() - begun:5.1f} s] {line}")

    return report
