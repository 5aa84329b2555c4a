"""Text from outside as it may be shown on a terminal or in a log."""

from __future__ import annotations

import re

_NOT_ASCII = re.compile(r"[^\x20-\x7e]")


def printable(text: str) -> str:
    """The text without control characters."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def printable_json(text: bytes) -> str:
    """JSON of the same meaning in which control characters and marks of direction are escaped."""
    return _NOT_ASCII.sub(_escaped, text.decode())


def _escaped(match: re.Match[str]) -> str:
    if match[0].isprintable():
        return match[0]
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))
