from __future__ import annotations


class LocalError(Exception):
    """A local server cannot be provided; the message is one line with the remedy."""

    exit_code = 1


class LocalUsageError(LocalError):
    """The request cannot be carried out with these arguments."""

    exit_code = 2
