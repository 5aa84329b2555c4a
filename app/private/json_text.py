"""The strings and numbers of JSON text: read or replaced where they stand.

Nothing is built of the text, so its depth does not matter, and what is not replaced stays as it is written. Names of
properties are strings like others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

_PART = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[0-9][0-9.eE+-]*', re.DOTALL)


def is_json(text: str) -> bool:
    """Text that is nested too deep for the parser counts as JSON."""
    if text.lstrip()[:1] not in {"{", "[", '"', "-", *"0123456789"}:
        return False
    try:
        json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def parts_of(text: str) -> Iterator[str]:
    """What the strings say, and the numbers as they are written."""
    return (_read(match[0]) for match in _PART.finditer(text))


def with_parts(text: str, change: Callable[[str], str]) -> str:
    """JSON text with each of its parts changed. A number that is changed becomes a string."""

    def changed(match: re.Match[str]) -> str:
        part = _read(match[0])
        new = change(part)
        return match[0] if new == part else _written(new)

    return _PART.sub(changed, text)


def _read(part: str) -> str:
    if not part.startswith('"'):
        return part
    try:
        return str(json.loads(part))
    except ValueError:  # only in text that is nested too deep to be checked
        return part


def _written(text: str) -> str:
    has_surrogates = any("\ud800" <= letter <= "\udfff" for letter in text)
    return json.dumps(text, ensure_ascii=has_surrogates)
