"""Errors of checkpoints, in one line: below all that reads files of models."""

from __future__ import annotations


class CheckpointError(Exception):
    """A model cannot be loaded or served correctly; the message is one line."""


def first_line(error: BaseException) -> str:
    """The first line of its message; the second one, too, if the first only announces it."""
    lines = [line.strip() for line in str(error).strip().splitlines()] or [type(error).__name__]
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
