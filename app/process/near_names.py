"""A name that is not known, with the known one that is probably meant: `max_toks (did you mean max_tokens?)`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_MOST = 12
_LONGEST = 64
_LIKE = 0.7
"""Of difflib: `maxTokens` is 0.84 like `max_tokens`, `promise` 0.62 like `prompt`."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like it; None if none is."""
    near = [] if len(name) > _LONGEST else difflib.get_close_matches(name, known, 1, _LIKE)
    return near[0] if near else None


def with_hint(name: str, known: Iterable[str]) -> str:
    meant = nearest(name, known)
    return name if meant is None else f"{name} (did you mean {meant}?)"


def with_hints(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """The first ones with hints: senders may send thousands of names."""
    known = sorted(known)
    return [*(with_hint(name, known) for name in names[:_MOST]), *names[_MOST:]]
