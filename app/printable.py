"""Text from outside as it may be shown on a terminal or in a log."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text without control characters."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
