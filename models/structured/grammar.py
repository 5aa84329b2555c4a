"""From an output constraint to a grammar of llguidance."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import any_to_lark

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

from models.generation import ConstraintError, ConstraintKind, OutputConstraint
from models.structured.schema import closed

LONGEST_ERROR = 300
IMPOSSIBLE = "it can never be satisfied"
TOO_LARGE = "it is too large"
TOO_SLOW = "it takes too long to compile"
NOT_KEPT_TO = "the answer so far violates it"
_IMPOSSIBLE = re.compile(r"\bNoExtension")
_TOO_LARGE = re.compile(r"\btoo (many|big|large|complex)\b|\bexceed|\bfuel\b|TooComplex|^panic\b", re.IGNORECASE)
"""A panic of llguidance is an assertion about its own limits."""


MOST_REMAINDERS = 20_000
"""llguidance implements `multipleOf` with a state per remainder, which its limits do not count: 20,000 take 0.2 s."""


WHITESPACE: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON is written like Python's `json.dumps`: free whitespace misleads small models."""


def grammar_of(constraint: OutputConstraint) -> str:
    """Raises `ConstraintError` if it is not JSON; compiling it shows whether the grammar makes sense. Tools have a
    grammar of their own (tool_grammar.py).
    """
    if constraint.kind is ConstraintKind.GRAMMAR:
        return LLMatcher.grammar_from_lark(_lark_of(constraint.rule))
    if constraint.kind is ConstraintKind.REGEX:
        return LLMatcher.grammar_from_regex(constraint.rule)
    try:
        rule = json.loads(constraint.rule)
    except (ValueError, RecursionError) as error:
        raise ConstraintError(one_line(str(error))) from None
    if constraint.kind is ConstraintKind.CHOICES:
        return LLMatcher.grammar_from_lark(
            "start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in rule)
        )
    if not isinstance(rule, dict):
        raise ConstraintError("the schema must be an object")
    return schema_grammar(rule)


def schema_grammar(schema: Mapping[str, Any]) -> str:
    """Raises `ConstraintError` if the schema is too large."""
    return LLMatcher.grammar_from_json_schema(prepared(schema), overrides=WHITESPACE)


def _lark_of(grammar: str) -> str:
    """A grammar in Lark or GBNF as Lark; raises `ConstraintError`. Takes a fifth of a second for the largest."""
    if "multipleOf" in grammar:
        raise ConstraintError("a grammar with multipleOf is not supported")
    try:
        return str(any_to_lark(grammar))
    except Exception as error:  # noqa: BLE001 - the converter raises whatever comes
        raise ConstraintError(one_line(str(error))) from None


def prepared(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as it is enforced; raises `ConstraintError`, and nothing else, if it cannot be."""
    try:
        is_too_large = _remainders(schema) > MOST_REMAINDERS
    except (ArithmeticError, ValueError):  # numbers that no decimal holds
        is_too_large = True
    if is_too_large:
        raise ConstraintError(f"multipleOf: {TOO_LARGE}")
    try:
        # this keyword would change llguidance's interpretation
        return closed({name: value for name, value in schema.items() if name != "x-guidance"})
    except RecursionError:
        raise ConstraintError(f"nesting: {TOO_LARGE}") from None


def _remainders(schema: object) -> int:
    """Upper bound of the states that the schema's `multipleOf` need.

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
            if _is_number(factor):
                # tens are free: the last digits decide
                digits = Decimal(str(factor)).normalize().as_tuple().digits
                factors.append(max(1, int("".join(map(str, digits)))))
    return math.prod(factors) if joined else sum(factors)


def _is_number(factor: object) -> bool:
    is_whole = isinstance(factor, int) and not isinstance(factor, bool)
    return is_whole or (isinstance(factor, float) and math.isfinite(factor))


def one_line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_ERROR] or "it cannot be compiled"


def limit_met(text: str) -> str | None:
    """Translate an llguidance error that names no place of the constraint; None for one that names what is wrong.

    Such an error includes the parser's state, which contains the answer: it must not be shown.
    """
    if _IMPOSSIBLE.search(text):
        return IMPOSSIBLE
    return TOO_LARGE if _TOO_LARGE.search(text) else None


def compile_error(text: str) -> str:
    """Why llguidance rejects a constraint, for its sender: the message may quote the constraint."""
    text = text.partition("<state>")[0]
    return limit_met(text) or one_line(text)


def step_error(text: str) -> str:
    """Why a constraint is no longer followed, without llguidance's internal details."""
    return limit_met(text.partition("<state>")[0]) or NOT_KEPT_TO
