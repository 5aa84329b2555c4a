"""Schemas are closed where they name properties, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from models.interface.generation import ConstraintError, ConstraintKind, OutputConstraint
from models.structured import ConstraintCompiler
from models.structured.grammar import prepared
from models.structured.schema import FORMATS, closed
from tests.unit.models.structured.walks import eos, matcher_of, tokenizer

A = {"properties": {"a": {"type": "integer"}}}
CLOSED = {**A, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (A, CLOSED),
        ({"type": "object"}, {"type": "object"}),
        ({**A, "additionalProperties": True}, {**A, "additionalProperties": True}),
        ({"properties": {"properties": A}}, {"properties": {"properties": CLOSED}, "additionalProperties": False}),
        ({"items": A, "uniqueItems": True}, {"items": CLOSED}),
        ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"$defs": {"x": A}, "$ref": "#/$defs/x"}, {"$defs": {"x": CLOSED}, "$ref": "#/$defs/x"}),
        ({"allOf": [A, A], **A}, {"allOf": [A, A], **CLOSED}),
        ({"properties": {}}, {"properties": {}, "additionalProperties": False}),
        ({"type": "string", "format": "byte"}, {"type": "string"}),
        ({"type": "string", "format": "uuid"}, {"type": "string", "format": "uuid"}),
        ({"enum": [A], "const": A}, {"enum": [A], "const": A}),
        ({"properties": True}, {"properties": True}),
    ],
)
def test_a_schema_that_names_properties_has_no_others(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert closed(schema) == expected


BASE = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
OWN = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
JOINED: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    (
        {"$defs": {"Base": BASE}, "allOf": [{"$ref": "#/$defs/Base"}, OWN]},
        [{"id": 1, "n": "x"}],
        [{"id": 1}, {"id": 1, "n": "x", "z": 1}],
    ),
    (
        {
            "$defs": {"Base": BASE, "Sub": {"allOf": [{"$ref": "#/$defs/Base"}, OWN]}},
            "type": "object",
            "properties": {"sub": {"$ref": "#/$defs/Sub"}, "base": {"$ref": "#/$defs/Base"}},
            "required": ["sub"],
        },
        [{"sub": {"id": 1, "n": "x"}}, {"sub": {"id": 1, "n": "x"}, "base": {"id": 2}}],
        [{"sub": {"id": 1, "n": "x", "z": 1}}, {"sub": {"id": 1, "n": "x"}, "base": {"id": 2, "z": 1}}],
    ),
    (
        {"$defs": {"B": BASE}, "$ref": "#/$defs/B", **OWN},
        [{"id": 1, "n": "x"}],
        [{"n": "x"}, {"id": 1, "n": "x", "z": 1}],
    ),
    (
        {**BASE, "anyOf": [OWN, {"properties": {"s": {"type": "string"}}, "required": ["s"]}]},
        [{"id": 1, "n": "x"}, {"id": 1, "s": "x"}],
        [{"id": 1}, {"id": 1, "n": "x", "z": 1}],
    ),
    (
        {"anyOf": [BASE, OWN]},
        [{"id": 1}, {"n": "x"}],
        [{"id": 1, "z": 1}, {}],
    ),
    (
        {"allOf": [BASE, OWN], "unevaluatedProperties": False, "title": "as OpenAPI 3.1 closes an object"},
        [{"id": 1, "n": "x"}],
        [{"id": 1, "n": "x", "z": 1}],
    ),
    (
        {"allOf": [BASE, {**OWN, "additionalProperties": True}]},
        [{"id": 1, "n": "x"}, {"id": 1, "n": "x", "z": 1}],
        [{"id": 1}],
    ),
    (
        {
            "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}, "allOf": [BASE]}},
            "$ref": "#/$defs/node",
        },
        [{"next": {"id": 2}, "id": 1}],
        [{"next": {"id": 2, "z": 1}, "id": 1}],
    ),
    ({**BASE, "required": ["id", "any"]}, [{"id": 1, "any": None}], [{"id": 1}, {"id": 1, "any": 1, "z": 1}]),
    ({**BASE, "allOf": [{"required": ["any"]}]}, [{"id": 1, "any": None}], [{"id": 1}, {"id": 1, "any": 1, "z": 1}]),
    ({"type": "object", "allOf": [{"required": ["a"]}]}, [{"a": 1}, {"a": 1, "z": 1}], [{}]),
]


@pytest.mark.parametrize(("schema", "allowed", "refused"), JOINED)
def test_an_object_of_parts_is_closed_as_a_whole(
    kept: ConstraintCompiler, schema: dict[str, Any], allowed: list[Any], refused: list[Any]
) -> None:
    for value in allowed:
        assert Draft202012Validator(schema).is_valid(value)
        assert is_allowed(kept, schema, value), value
    for value in refused:
        assert not is_allowed(kept, schema, value), value


@pytest.mark.parametrize("name", ["byte", "binary", "password", "uri-reference", "regex", "google-datetime", "phone"])
def test_a_format_that_cannot_be_enforced_is_an_annotation(kept: ConstraintCompiler, name: str) -> None:
    assert is_allowed(kept, {"type": "string", "format": name}, "anything")


@pytest.mark.parametrize("name", sorted(FORMATS - {"unknown"}))
def test_a_format_that_is_enforced_is_known_to_llguidance(kept: ConstraintCompiler, name: str) -> None:
    assert not is_allowed(kept, {"type": "string", "format": name}, "no such thing!")


def is_allowed(kept: ConstraintCompiler, schema: dict[str, Any], value: Any) -> bool:
    matcher = matcher_of(kept, OutputConstraint(ConstraintKind.JSON, json.dumps(schema)))
    for token in tokenizer()(json.dumps(value), add_special_tokens=False).input_ids:
        if not int.from_bytes(matcher.allowed(), "little") & 1 << token:
            return False
        matcher.advance(token)
    return bool(int.from_bytes(matcher.allowed(), "little") & 1 << eos())


@pytest.mark.parametrize("rule", [{"const": 9007199254740993}, {"enum": [1, -1234567890123456789]}])
def test_an_integer_that_would_become_another_is_refused(rule: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"id": rule}}
    with pytest.raises(ConstraintError, match=r"const, enum: -?[0-9]+ is beyond 2\*\*53"):
        prepared(schema)
    assert prepared({"type": "object", "properties": {"id": {"const": 2**53}}})
