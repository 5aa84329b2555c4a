"""How deeply a JSON text nests, found without parsing it."""

from __future__ import annotations

import re

from app.wire.limits import MAX_DEPTH

# As in `salvage`: an unterminated string matches up to the end, so the search is linear for any input.
_NOT_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[^"\[{\]}]++', re.DOTALL)


def too_deep(value: bytes) -> bool:
    if value.count(b"{") + value.count(b"[") <= MAX_DEPTH:
        return False
    depth = 0
    for bracket in _NOT_BRACKETS.sub(b"", value):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            return True
    return False
