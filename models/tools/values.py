"""Values of arguments that are not written as JSON: what their schemas say they are, and how they are written."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from models.tools import json_pointer

ALL_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
STRING = frozenset({"string"})
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
_TYPE_OF = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
}
_DEEPEST = 32
_UNREADABLE = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, msgspec.DecodeError)


def types_of(schema: Any, root: Mapping[str, Any], levels: int = _DEEPEST) -> frozenset[str]:
    """The JSON types that a value of this schema may have; `root` has the definitions that it refers to."""
    if not isinstance(schema, Mapping) or not levels:
        return ALL_TYPES
    types = _named(schema.get("type"))
    for name in ("anyOf", "oneOf"):
        if isinstance(parts := schema.get(name), list):
            types &= frozenset[str]().union(*(types_of(part, root, levels - 1) for part in parts))
    if isinstance(parts := schema.get("allOf"), list):
        for part in parts:
            types &= types_of(part, root, levels - 1)
    if isinstance(values := schema.get("enum"), list):
        types &= frozenset(map(type_of, values))
    if "const" in schema:
        types &= {type_of(schema["const"])}
    if (target := target_of(schema, root)) is not None:
        types &= types_of(target, root, levels - 1)
    return types


def target_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    """What the schema refers to within its document; None if there is none."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    return json_pointer.target_of(root, json_pointer.steps_of(reference))


def type_of(value: Any) -> str:
    """The JSON type of a value; `number` only if it is not a whole one."""
    return _TYPE_OF.get(type(value), "object")


def json_of(text: str, types: frozenset[str]) -> str:
    """The JSON of a value that was written as plain text: a string unless it reads as another of its types."""
    if others := types - STRING:
        for read in (_json, _constant, _literal):
            value_json = read(text.strip())
            if value_json is not None and type_of(msgspec.json.decode(value_json)) in others:
                return value_json
    return quoted(text)


def json_of_literal(text: str) -> str | None:
    """The JSON of a literal of Python or JSON; None if it is none."""
    text = text.strip()
    return next((value_json for read in (_json, _constant, _literal) if (value_json := read(text)) is not None), None)


def literal_of(value: Any) -> str:
    """A JSON value as Python writes it, with strings in double quotes."""
    match value:
        case bool() | None:
            return str(value)
        case list():
            return f"[{', '.join(map(literal_of, value))}]"
        case dict():
            return f"{{{', '.join(f'{quoted(key)}: {literal_of(one)}' for key, one in value.items())}}}"
        case _:
            return quoted(value) if isinstance(value, str) else json.dumps(value)


def plain_text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def object_of(arguments: str) -> dict[str, Any]:
    """The arguments by their names; what is no object is one argument."""
    try:
        values = msgspec.json.decode(arguments or "{}")
    except _UNREADABLE:
        values = arguments
    return values if isinstance(values, dict) else {"arguments": values}


def _named(types: Any) -> frozenset[str]:
    names = [types] if isinstance(types, str) else types
    if not isinstance(names, list):
        return ALL_TYPES
    known = ALL_TYPES & {name for name in names if isinstance(name, str)}
    return known | {"integer"} if "number" in known else known


def _json(text: str) -> str | None:
    try:
        msgspec.json.decode(text)
    except _UNREADABLE:
        return None
    return text


def _constant(text: str) -> str | None:
    return _CONSTANTS.get(text)


def _literal(text: str) -> str | None:
    try:
        value_json = json.dumps(ast.literal_eval(text), ensure_ascii=False, allow_nan=False)
        value_json.encode()  # halves of a surrogate pair, which Python's strings may have
    except _UNREADABLE:
        return None
    return value_json
