"""Whether the arguments of a call follow its tool's schema, where no engine has held them to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import jsonschema_rs

from app.wire import json_codec

_MOST_BYTES = 1 << 20
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=_MOST_BYTES, dfa_size_limit=_MOST_BYTES)
"""Patterns that take linear time: schemas and arguments come from outside."""


def arguments_mistake(arguments: str, schema: Mapping[str, Any] | None) -> str | None:
    """What is wrong with these arguments, JSON text; None if nothing is. It quotes nothing of them.

    A schema that cannot be followed, because it is none, or refers to another place, takes any object: so do engines.
    """
    try:
        decoded = json_codec.decode(arguments.encode(), dict[str, Any])
    except json_codec.MalformedError:
        return "must be a JSON object"
    try:
        validator = jsonschema_rs.validator_for(dict(schema or {}), retriever=_retrieve, pattern_options=_PATTERNS)
    except ValueError:
        return None
    if (error := next(iter(validator.iter_errors(decoded)), None)) is None:
        return None
    at = ".".join(str(step) for step in error.schema_path)
    return f"do not follow the tool's schema ({at})"


def _retrieve(_uri: str) -> NoReturn:
    raise ValueError("schemas of other places are not read")
