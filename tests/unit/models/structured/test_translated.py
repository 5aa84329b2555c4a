"""Keywords that llguidance lacks, in those that it has: the same values are allowed, by jsonschema."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from models.interface.generation import ConstraintError
from models.structured import ConstraintCompiler
from models.structured.grammar import prepared
from models.structured.translated import MOST_PLACES, TooManyPlacesError, translated
from tests.unit.models.structured.test_schema import is_allowed

PART = {"type": "object", "properties": {"a": {"type": "string", "format": "byte"}}, "required": ["a"]}
KIND = {"type": "object", "properties": {"kind": {"type": "string"}}, "required": ["kind"]}
CAT, DOG = (
    {"allOf": [{"$ref": "#/x/Base"}, {"type": "object", "properties": {"kind": {"enum": [name]}}}]}
    for name in ("cat", "dog")
)
NUMBERS = {"type": "object", "additionalProperties": {"type": "integer"}}
UUID = "0e984725-c51c-4bf4-9960-e1c80e27aba0"
CASES: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"$ref": "#/components/schemas/P", "components": {"schemas": {"P": PART}}}, [{"a": "x"}], [{}, {"a": 1}]),
    ({"type": "array", "items": {"$ref": "#/parts/0"}, "parts": [PART]}, [[{"a": "x"}]], [[1], [{}]]),
    ({"$defs": {"Größe": PART}, "$ref": "#/$defs/Größe"}, [{"a": "x"}], [{}]),
    ({"$defs": {"a b": PART}, "$ref": "#/$defs/a%20b"}, [{"a": "x"}], [{}]),
    ({"$defs": {"a/b": PART}, "$ref": "#/$defs/a~1b"}, [{"a": "x"}], [{}]),
    ({"properties": {"a": {"type": "null"}, "b": {"$ref": "#/properties/a"}}, "required": ["b"]}, [{"b": None}], [{}]),
    ({"x": {"n": {"properties": {"n": {"$ref": "#/x/n"}}}}, "$ref": "#/x/n"}, [{"n": {"n": {}}}], [{"n": {"m": 1}}]),
    ({**NUMBERS, "propertyNames": {"type": "string"}}, [{"any": 1}, {}], [{"any": "x"}]),
    ({**NUMBERS, "propertyNames": {"enum": ["a", "b"]}}, [{"a": 1}, {}], [{"c": 1}, {"a": "x"}]),
    ({**NUMBERS, "propertyNames": {"const": "a"}}, [{"a": 1}, {}], [{"c": 1}]),
    ({**NUMBERS, "propertyNames": {"$ref": "#/$defs/n"}, "$defs": {"n": {"enum": ["a"]}}}, [{"a": 1}], [{"c": 1}]),
    ({**NUMBERS, "propertyNames": {"pattern": "^[a-c]$"}}, [{"a": 1}, {}], [{"d": 1}, {"a": "x"}]),
    ({**NUMBERS, "propertyNames": {"minLength": 2, "maxLength": 3}}, [{"ab": 1}, {}], [{"a": 1}, {"abcd": 1}]),
    ({**NUMBERS, "propertyNames": {"type": "string", "format": "uuid"}}, [{UUID: 1}], [{"x": 1}]),
    ({**NUMBERS, "propertyNames": {"type": "string", "format": "idn-email"}}, [{"x": 1}], [{"x": "x"}]),
    ({"anyOf": [{"not": {}}, {"type": "null"}]}, [None], [1, {}]),
    ({"type": "object", "properties": {"a": {"not": {}}}, "additionalProperties": False}, [{}], [{"a": 1}]),
    ({"type": "number", "minimum": -3.4e38, "maximum": 3.4e38}, [0, -1.5, 123456], ["x", None]),
    ({"type": "integer", "minimum": 0, "maximum": 2**64}, [0, 5], [-1]),
    ({"type": "string", "format": "ipv4", "pattern": "^(?=.)(?!x)"}, ["127.0.0.1"], ["x"]),
    ({"oneOf": [{"$ref": "#/x/s"}, {"$ref": "#/x/n"}], "x": {"s": {"type": "string"}, "n": {"type": "number"}}},
     ["x", 1], [None]),
    ({"oneOf": [{"$ref": "#/x/Cat"}, {"$ref": "#/x/Dog"}], "x": {"Base": KIND, "Cat": CAT, "Dog": DOG}},
     [{"kind": "cat"}, {"kind": "dog"}], [{"kind": "cow"}, {}]),
    ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, [0.5, 0.25, 0.001], [0, 0.51, -0.1]),
    ({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1.25}, [1.1, 1.24], [1, 1.25, 2]),
    ({"type": "number", "minimum": -2.55, "maximum": 19.99}, [-2.5, -2.55, 19.9, 19.99, 0], [-2.56, 20, 19.991]),
    ({"type": "number", "exclusiveMaximum": 0.125, "anyOf": [{"minimum": 0}]}, [0.1, 0.12, 0], [0.125, 0.13, -1]),
    ({"type": "string", "minLength": 1.0, "maxLength": 2.0}, ["a", "ab"], ["", "abc"]),
    ({"type": "string", "maxLength": 2**53}, ["", "a"], [1]),
    ({"type": "array", "minItems": 1.0, "maxItems": 2**64}, [[1]], [[]]),
    ({"default": {"multipleOf": 999983, "enum": [2**60]}, "type": "integer"}, [1], ["x"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "allowed", "refused"), CASES, ids=range(len(CASES)))
def test_the_same_values_are_allowed(
    kept: ConstraintCompiler, schema: dict[str, Any], allowed: list[Any], refused: list[Any]
) -> None:
    for value in allowed:
        assert Draft202012Validator(schema).is_valid(value), value
        assert is_allowed(kept, schema, value), value
    for value in refused:
        assert not is_allowed(kept, schema, value), value


def test_numbers_are_those_of_their_range(kept: ConstraintCompiler) -> None:
    chance = random.Random(3)
    for _ in range(60):
        places = chance.choice((0, 1, 2, 3))
        least, most = sorted(Decimal(chance.randint(-300, 300)).scaleb(-places) for _ in range(2))
        names = chance.choice(("minimum", "exclusiveMinimum")), chance.choice(("maximum", "exclusiveMaximum"))
        if least == most:
            continue
        schema = {"type": "number", names[0]: _written(least), names[1]: _written(most)}
        around = (Decimal(step).scaleb(-places) for step in range(-2, 3))
        for value in {_written(bound + step) for step in around for bound in (least, most)}:
            right = Draft202012Validator(schema).is_valid(value)
            assert is_allowed(kept, schema, value) == right, (schema, value)


def test_many_ranges_are_not_too_large_together(kept: ConstraintCompiler) -> None:
    number = {"type": "number", "minimum": -1.125, "maximum": 1.125}
    schema = {"type": "object", "properties": {f"p{n}": number for n in range(400)}}
    assert is_allowed(kept, schema, {"p7": 0.5, "p399": -1.125})


def _written(number: Decimal) -> float:
    return float(number) if number % 1 else int(number)


def test_a_keyword_without_a_value_is_none(kept: ConstraintCompiler) -> None:
    """As serializers of Java, C# and Go write what is not set; JSON Schema has no such value."""
    nothing = dict.fromkeys(
        (
            "enum",
            "items",
            "anyOf",
            "oneOf",
            "allOf",
            "pattern",
            "format",
            "minLength",
            "maximum",
            "$ref",
            "default",
            "not",
        )
    )
    text = {**nothing, "type": "string"}
    whole = {"type": "object", "properties": {"a": text}, "required": None, "additionalProperties": None, "$defs": None}
    assert is_allowed(kept, whole, {"a": "x"})
    assert is_allowed(kept, whole, {})
    assert not is_allowed(kept, whole, {"a": 1})
    assert not is_allowed(kept, whole, {"b": 1})
    assert is_allowed(kept, {"const": None}, None)
    assert is_allowed(kept, {"type": "object", "properties": None}, {"b": 1})


def test_a_choice_of_nothing_but_null_is_null_in_openapi(kept: ConstraintCompiler) -> None:
    schema = {"type": "string", "nullable": True, "enum": [None]}
    assert is_allowed(kept, schema, None)
    assert not is_allowed(kept, schema, "")


@pytest.mark.parametrize(
    ("schema", "reported"),
    [
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "^oneOf: .*anyOf$"),
        ({"type": "string", "pattern": "^(?:(?!x).)*$"}, "look-around"),
        ({"type": "string", "pattern": "x(?<!y)z"}, "look-around"),
        ({"type": "string", "pattern": "^(?!.*--)[a-z-]+$"}, "look-around"),
        ({**NUMBERS, "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({**NUMBERS, "not": {"required": ["a"]}}, '"not"'),
        ({**NUMBERS, "if": {"required": ["a"]}, "then": {"required": ["b"]}}, '"if"'),
        ({**NUMBERS, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "oneOf"),
        ({"type": "number", "minimum": 1e30}, "."),
        ({"$ref": "#/nothing/here"}, "nothing"),
        ({**NUMBERS, "propertyNames": {"anyOf": [{"const": "a"}, {"pattern": "b"}]}}, "propertyNames"),
    ],
)
def test_what_cannot_be_said_otherwise_is_refused(
    kept: ConstraintCompiler, schema: dict[str, Any], reported: str
) -> None:
    with pytest.raises(ConstraintError, match=reported) as caught:
        is_allowed(kept, schema, 1)
    assert "coerce" not in str(caught.value)


KEYWORDS = (
    *("type", "properties", "required", "if", "then", "else", "not", "oneOf", "anyOf", "allOf", "dependentRequired"),
    *("dependencies", "enum", "const", "pattern", "patternProperties", "propertyNames", "items", "$ref", "$defs"),
    *("minLength", "maxItems", "format", "additionalProperties", "nullable", "minimum", "prefixItems"),
)
VALUES = (
    None,
    True,
    0,
    1.5,
    10.0,
    "a",
    "^(?!a)b",
    "string",
    "object",
    "#",
    [],
    {},
    ["a", "b"],
    [1, None],
    [{}],
    "null",
)


def _any_value(chance: random.Random, levels: int) -> Any:
    kind = chance.random()
    if not levels or kind < 0.35:
        return chance.choice(VALUES)
    if kind < 0.85:
        return {chance.choice(KEYWORDS): _any_value(chance, levels - 1) for _ in range(chance.randint(0, 5))}
    return [_any_value(chance, levels - 1) for _ in range(chance.randint(0, 3))]


def test_whatever_a_schema_has_for_a_keyword_is_no_error_of_the_translation() -> None:
    chance = random.Random(5)
    for _ in range(2000):
        prepared({chance.choice(KEYWORDS): _any_value(chance, 3) for _ in range(chance.randint(1, 6))})


def test_a_place_is_one_definition_however_it_is_spelled() -> None:
    spellings = ["#/parts/a", "#/parts/%61", "#/p%61rts/a"]
    made = translated({"parts": {"a": PART}, "anyOf": [{"$ref": one} for one in spellings]})
    assert len(made["$defs"]) == 1
    many = {"parts": [PART] * (MOST_PLACES + 1), "anyOf": [{"$ref": f"#/parts/{n}"} for n in range(MOST_PLACES + 1)]}
    with pytest.raises(TooManyPlacesError):
        translated(many)


def test_names_of_definitions_stay_apart() -> None:
    made = translated({"$defs": {"place0": {"type": "null"}}, "x": [PART], "$ref": "#/x/0"})
    assert made["$defs"]["place0"] == {"type": "null"}
    assert made["$ref"] != "#/$defs/place0"
