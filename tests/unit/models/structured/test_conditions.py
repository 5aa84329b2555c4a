"""Conditions between properties are followed as choices: the same values are allowed, by jsonschema."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from models.interface.generation import ConstraintError
from models.structured import ConstraintCompiler
from tests.unit.models.structured.test_schema import is_allowed

TEXT = {"type": "string"}
AB = {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
KIND = {"type": "object", "properties": {"k": {"enum": ["a", "b", "c"]}, "v": TEXT, "w": TEXT}, "required": ["k"]}
IS_A, IS_B = ({"properties": {"k": {"const": one}}} for one in "ab")
NEEDS_V, NEEDS_W = {"required": ["v"]}, {"required": ["w"]}
A, B, BOTH = {"a": "x"}, {"b": "x"}, {"a": "x", "b": "y"}
CASES: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({**AB, "dependentRequired": {"a": ["b"]}}, [BOTH, B, {}], [A]),
    ({**AB, "dependencies": {"a": ["b"]}}, [BOTH, B, {}], [A]),
    ({**AB, "dependentSchemas": {"a": {"required": ["b"]}}}, [BOTH, B, {}], [A]),
    ({**AB, "not": {"required": ["a", "b"]}}, [A, B, {}], [BOTH]),
    ({**AB, "not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}}, [{}], [A, B, BOTH]),
    ({**AB, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, [A, B], [{}, BOTH]),
    ({**AB, "oneOf": [{"required": ["a"]}, {"not": {"required": ["a"]}}]}, [A, B, {}, BOTH], [{"c": 1}]),
    ({**KIND, "if": IS_A, "then": NEEDS_V}, [{"k": "a", "v": "x"}, {"k": "b"}], [{"k": "a"}]),
    ({**KIND, "if": IS_A, "then": NEEDS_V, "else": NEEDS_W},
     [{"k": "a", "v": "x"}, {"k": "b", "w": "x"}], [{"k": "a"}, {"k": "c", "v": "x"}]),
    ({**KIND, "allOf": [{"if": IS_A, "then": NEEDS_V}, {"if": IS_B, "then": NEEDS_W}]},
     [{"k": "a", "v": "x"}, {"k": "b", "w": "x"}, {"k": "c"}], [{"k": "a"}, {"k": "b", "v": "x"}]),
    ({**AB, "required": ["a"], "if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["b"]}},
     [BOTH, {"a": "xx"}, {"a": ""}], [A]),
    ({"type": "object", "properties": {"k": {"$ref": "#/$defs/K"}, "v": TEXT}, "required": ["k"],
      "$defs": {"K": {"enum": ["a", "b"]}}, "if": IS_A, "then": NEEDS_V},
     [{"k": "a", "v": "x"}, {"k": "b"}], [{"k": "a"}]),
    ({**AB, "then": {"required": ["a"]}}, [{}], [{"a": 1}]),
    ({**AB, "if": {"required": ["a"]}}, [{}, A], [{"a": 1}]),
    ({**TEXT, "not": {"const": "x"}}, ["", "y", "xx"], ["x"]),
    ({**TEXT, "not": {"enum": ["", "a"]}}, ["b", "aa"], ["", "a"]),
    ({**TEXT, "not": {"pattern": "^-"}}, ["", "a-"], ["-a"]),
    ({"enum": ["a", 1, None], "not": {"const": 1}}, ["a", None], [1]),
    ({"not": {"type": "null"}}, [1, "x", {}], [None]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "allowed", "refused"), CASES, ids=range(len(CASES)))
def test_the_same_values_are_allowed(
    kept: ConstraintCompiler, schema: dict[str, Any], allowed: list[Any], refused: list[Any]
) -> None:
    draft = Draft7Validator if "dependencies" in schema else Draft202012Validator
    for value in allowed:
        assert draft(schema).is_valid(value), value
        assert is_allowed(kept, schema, value), value
    for value in refused:
        assert not is_allowed(kept, schema, value), value


@pytest.mark.parametrize(
    ("schema", "reported"),
    [
        ({**AB, "not": {"minProperties": 1}}, "not"),
        ({**AB, "if": {"properties": {"a": {"maxLength": 3}}}, "then": {"required": ["b"]}}, "if"),
        ({"not": {"type": "integer"}}, "not"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
        ({**AB, "dependentRequired": {f"p{n}": ["a"] for n in range(20)}}, "dependentRequired"),
        ({**AB, "dependentRequired": 5}, "dependentRequired"),
    ],
)
def test_a_condition_that_cannot_be_said_is_refused_by_name(
    kept: ConstraintCompiler, schema: dict[str, Any], reported: str
) -> None:
    with pytest.raises(ConstraintError, match=reported):
        is_allowed(kept, schema, {})
