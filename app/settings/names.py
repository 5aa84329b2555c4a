"""Names of settings in the environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from app.process.near_names import nearest

PREFIX = "PARLEY_"

RENAMED: Mapping[str, str] = MappingProxyType({
    "PARLEY_HISTORY_TURNS": "PARLEY_CONVERSATION_TURNS",
    "PARLEY_HISTORY_TTL_S": "PARLEY_INDEX_TTL_S",
    "PARLEY_FINISH_TIMEOUT_S": "PARLEY_COMMIT_TIMEOUT_S",
    "PARLEY_GATEWAY_DRAIN_S": "PARLEY_DRAIN_S",
})  # fmt: skip
"""Other names that count as well, unless the first one is set."""


def warnings_of(names: Iterable[str], known: frozenset[str]) -> Iterator[str]:
    """One line for each of these variables that begins with `PARLEY_` and is no setting of this release."""
    for name in sorted({name.upper() for name in names if name.upper().startswith(PREFIX)} - known):
        if name in RENAMED:
            yield f"{name} is now {RENAMED[name]}; the old name still counts"
        else:
            yield f"{name} is not a setting of Parley and is ignored{_meant(name, known)}"


def _meant(name: str, known: frozenset[str]) -> str:
    """The part that all have would make all alike."""
    near = nearest(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known])
    return "" if near is None else f"; did you mean {PREFIX}{near}?"
