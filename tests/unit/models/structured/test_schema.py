"""Schemas are closed where they name properties, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from models.structured.schema import closed

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
        ({"allOf": [A, A], **A}, {"allOf": [A, A], **A}),
        ({"enum": [A], "const": A}, {"enum": [A], "const": A}),
        ({"properties": True}, {"properties": True}),
    ],
)
def test_a_schema_that_names_properties_has_no_others(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert closed(schema) == expected
