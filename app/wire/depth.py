"""What JSON texts are refused for before anything parses them: their nesting, and the length of their numbers.

Parsers, templates and grammars recurse into a text, and a number of hundreds of digits is none that floats can hold, so
both rules are for every JSON text of a record, also one that is a string in it.
"""

from __future__ import annotations

import re

from app.wire.limits import MAX_DEPTH, MAX_DIGITS
from app.wire.malformed import MalformedError

# As in `salvage`: an unterminated string matches up to the end, so the search is linear for any input.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = re.compile(rb"[^\[{\]}]++")
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))


def check_depth(value: bytes | bytearray) -> None:
    """Raise `MalformedError` for a text that is nested too deeply."""
    if value.count(b"{") + value.count(b"[") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _NOT_BRACKETS.sub(b"", _STRING.sub(b'"', value)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise MalformedError(f"nested deeper than {MAX_DEPTH} levels")


def check_digits(value: bytes) -> None:
    """Raise `MalformedError` for a text that has a number with too many digits."""
    if _LONG_NUMBER.search(value) and _LONG_NUMBER.search(_STRING.sub(b'"', value)):
        raise MalformedError(f"a number has more than {MAX_DIGITS} digits")
