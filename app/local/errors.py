from __future__ import annotations


class LocalError(Exception):
    """A local part cannot be had; the message is one line that says what to do."""

    exit_code = 1


class LocalUsageError(LocalError):
    """What was asked for cannot be done with these arguments."""

    exit_code = 2
