"""JSON schemas as people mean them: objects with the properties that they name, and no others.

OpenAI's strict mode and vLLM treat a schema this way. Without it, a small model invents keys until its answer is cut.
`uniqueItems` is left out: a grammar cannot express it, and vLLM does not enforce it either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SCHEMAS = ("items", "additionalProperties", "contains", "propertyNames")
_LISTS = ("anyOf", "oneOf", "prefixItems")
_TABLES = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_OPEN = ("additionalProperties", "unevaluatedProperties", "patternProperties", "allOf", "$ref")


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with `additionalProperties: false` wherever it names properties and leaves open whether more may
    follow. Parts that are joined by `allOf` or `$ref` stay as they are: closing one of them would exclude the others.
    """
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "uniqueItems":
            continue
        if name in _SCHEMAS and isinstance(value, dict):
            found[name] = closed(value)
        elif name in _LISTS and isinstance(value, list):
            found[name] = [closed(one) if isinstance(one, dict) else one for one in value]
        elif name in _TABLES and isinstance(value, dict):
            found[name] = {key: closed(one) if isinstance(one, dict) else one for key, one in value.items()}
        else:
            found[name] = value
    if isinstance(found.get("properties"), dict) and not any(name in found for name in _OPEN):
        found["additionalProperties"] = False
    return found
