"""What people read of the local servers: lines of progress, and errors."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from app.process.process_end import ExitCode

Report = Callable[[str], None]


class LocalError(Exception):
    """A local server cannot be provided; the message is one line with the remedy."""

    exit_code = ExitCode.FAILED


class LocalUsageError(LocalError):
    """The request cannot be carried out with these arguments."""

    exit_code = ExitCode.WRONG_USE


def silent(_line: str) -> None:
    """Discards lines; for callers such as the tests."""


def timed(write: Report) -> Report:
    """Prefix each line with the seconds since now."""
    begun = monotonic()

    def report(line: str) -> None:
        write(f"[{monotonic() - begun:5.1f} s] {line}")

    return report
