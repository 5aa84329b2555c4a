"""Templates of an intake: a text of a request that is put together from fields of the record, as `{event}: {query}`.

What stands in braces is the name of a field as it is, or a path of names: nothing of it is evaluated. A brace of the
text itself is written twice.
"""

from __future__ import annotations

import re
from functools import lru_cache

_PART = re.compile(r"(?P<twice>\{\{|\}\})|\{(?P<path>[^{}]+)\}|(?P<loose>[{}])")


class TemplateError(ValueError):
    """The text is no template; the message says where and what to write."""


@lru_cache
def parts_of(template: str) -> tuple[tuple[str, str], ...]:
    """What the text consists of: each literal with the path of the field behind it, empty behind the last one. Raises
    `TemplateError`.
    """
    parts: list[tuple[str, str]] = []
    literal, at = "", 0
    for match in _PART.finditer(template):
        literal += template[at : match.start()]
        at = match.end()
        if match["loose"]:
            where = f"the {match['loose']!r} at character {match.start() + 1}"
            raise TemplateError(f"{where} belongs to no field; a brace of the text itself is written twice")
        if match["path"] is None:
            literal += match["twice"][0]
        else:
            parts.append((literal, match["path"]))
            literal = ""
    if not parts:
        raise TemplateError("names no field, as {text} does; a text that is always the same belongs in constants")
    return (*parts, (literal + template[at:], ""))


def paths_of(template: str) -> tuple[str, ...]:
    """The fields of the record that it needs; none if it is no template."""
    try:
        return tuple(path for _, path in parts_of(template) if path)
    except TemplateError:
        return ()


def literal_bytes(template: str) -> int:
    """Bytes of the text whatever the record is; 0 if it is no template."""
    try:
        return sum(len(literal.encode()) for literal, _ in parts_of(template))
    except TemplateError:
        return 0
