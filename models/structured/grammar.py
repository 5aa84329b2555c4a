"""From a shape to a grammar in the words of llguidance."""

from __future__ import annotations

import json

from llguidance import LLMatcher

from models.generation import Shape, ShapeKind

LONGEST_ERROR = 300


class ShapeError(Exception):
    """A shape has no meaning, or is too large to be followed; one line for people."""


def grammar_of(shape: Shape) -> str:
    """Raises `ShapeError` for what is no JSON; whether the grammar makes sense is found when it is compiled."""
    if shape.kind is ShapeKind.REGEX:
        return LLMatcher.grammar_from_regex(shape.rule)
    try:
        rule = json.loads(shape.rule)
    except (ValueError, RecursionError) as error:
        raise ShapeError(one_line(str(error))) from None
    if shape.kind is ShapeKind.CHOICES:
        return LLMatcher.grammar_from_lark(
            "start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in rule)
        )
    if not isinstance(rule, dict):
        raise ShapeError("the schema must be an object")
    # what a schema says under this name would change how it is read: it would no longer be followed to the letter
    rule.pop("x-guidance", None)
    # free whitespace is where a small model gets lost: JSON is written as Python's `json.dumps` writes it
    return LLMatcher.grammar_from_json_schema(
        rule, overrides={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    )


def one_line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_ERROR] or "it cannot be compiled"
