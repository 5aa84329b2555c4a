"""References within a JSON schema: `#/$defs/name`, or to any other place of the document (RFC 6901)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote


def steps_of(reference: str) -> tuple[str, ...]:
    """The keys and places that lead from the document to what a reference within it names."""
    return tuple(unquote(step).replace("~1", "/").replace("~0", "~") for step in reference.split("/")[1:])


def target_of(root: Mapping[str, Any], steps: Sequence[str]) -> Any:
    """What is there; None if nothing is."""
    target: Any = root
    for step in steps:
        if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
            target = target[int(step)]
        elif isinstance(target, Mapping):
            target = target.get(step)
        else:
            return None
    return target
