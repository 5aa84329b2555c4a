"""What JSON texts are refused for before anything parses them: their nesting, and the length of their numbers.

Parsers, templates and grammars recurse into a text, and a number of hundreds of digits is none that floats can hold, so
both rules are for every JSON text of a record, also one that is a string in it.
"""

from __future__ import annotations

import re
from itertools import accumulate

from app.wire.limits import MAX_DEPTH, MAX_DIGITS
from app.wire.malformed import MalformedError

# As in `salvage`: an unterminated string matches up to the end, so the search is linear for any input.
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_QUOTED = re.compile(rb'"[^"]*"?')
_OTHERS = bytes(set(range(256)) - set(b'"[]{}'))
_STEPS = [1 if byte in b"[{" else -1 for byte in range(256)]
_LONG_NUMBER = re.compile(rb"(?<![0-9])[0-9]{%d}" % (MAX_DIGITS + 1))


def check_depth(value: bytes | bytearray) -> None:
    """Raise `MalformedError` for a text that is nested too deeply.

    Each step but the last is a pass in C: a megabyte of small objects takes milliseconds of the event loop.
    """
    opened = value.count(b"{") + value.count(b"[")
    if opened <= MAX_DEPTH:
        return
    quotes_and_brackets = value.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    brackets = _QUOTED.sub(b"", quotes_and_brackets.replace(b'""', b""))
    # A parser stops at the first bracket that closes nothing, so it gets no further than this.
    depths = accumulate(map(_STEPS.__getitem__, brackets[: 2 * opened]))
    if max(depths, default=0) > MAX_DEPTH:
        raise MalformedError(f"nested deeper than {MAX_DEPTH} levels")


def check_digits(value: bytes) -> None:
    """Raise `MalformedError` for a text that has a number with too many digits."""
    if _LONG_NUMBER.search(value) and _LONG_NUMBER.search(_STRING.sub(b'"', value)):
        raise MalformedError(f"a number has more than {MAX_DIGITS} digits")
