"""From a shape to a grammar in the words of llguidance."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal

from llguidance import LLMatcher

from models.generation import Shape, ShapeKind

LONGEST_ERROR = 300
IMPOSSIBLE = "it can never be fulfilled"
TOO_LARGE = "it is too large to follow"
NOT_KEPT_TO = "what is said does not keep to it"
_IMPOSSIBLE = re.compile(r"\bNoExtension")
_TOO_LARGE = re.compile(r"\btoo (many|big|large|complex)\b|\bexceed|\bfuel\b|TooComplex", re.IGNORECASE)


MOST_REMAINDERS = 20_000
"""llguidance follows `multipleOf` by a state for each remainder, which its limits do not count: 20,000 take 0.2 s."""


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
    if _remainders(rule) > MOST_REMAINDERS:
        raise ShapeError(f"multipleOf: {TOO_LARGE}")
    # what a schema says under this name would change how it is read: it would no longer be followed to the letter
    rule.pop("x-guidance", None)
    # free whitespace is where a small model gets lost: JSON is written as Python's `json.dumps` writes it
    return LLMatcher.grammar_from_json_schema(
        rule, overrides={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    )


def _remainders(schema: object) -> int:
    """How many states the schema's `multipleOf` need, at the most.

    Those of different places add up. Where schemas are joined (`allOf`, or a `$ref` beside other rules) they multiply.
    """
    factors: list[int] = []
    joined = False
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
            joined = joined or "allOf" in part or ("$ref" in part and len(part) > 1)
            factor = part.get("multipleOf")
            if isinstance(factor, int | float) and not isinstance(factor, bool) and math.isfinite(factor):
                # tens cost nothing: the last digits tell
                digits = Decimal(str(factor)).normalize().as_tuple().digits
                factors.append(max(1, int("".join(map(str, digits)))))
    return math.prod(factors) if joined else sum(factors)


def one_line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_ERROR] or "it cannot be compiled"


def limit_met(text: str) -> str | None:
    """What an error of llguidance comes to that is about no place of the shape; None for one that names what is wrong.

    Behind such an error stands the state of the parser, with all that was said: it is for nobody's eyes.
    """
    if _IMPOSSIBLE.search(text):
        return IMPOSSIBLE
    return TOO_LARGE if _TOO_LARGE.search(text) else None


def compile_error(text: str) -> str:
    """Why llguidance does not take a shape, for whoever sent it: it may hold pieces of the shape."""
    text = text.partition("<state>")[0]
    return limit_met(text) or one_line(text)


def step_error(text: str) -> str:
    """Why a shape is not followed any further: nothing of what llguidance says of it, which are its own affairs."""
    return limit_met(text.partition("<state>")[0]) or NOT_KEPT_TO
