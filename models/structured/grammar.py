"""From an output constraint to a grammar of llguidance."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

from models.interface.generation import ConstraintError, ConstraintKind, OutputConstraint
from models.structured.patterns import whole
from models.structured.schema import TooManyNamesError, closed
from models.structured.translated import TooManyPlacesError, translated

LONGEST_ERROR = 300
IMPOSSIBLE = "it can never be satisfied"
TOO_LARGE = "it is too large"
TOO_SLOW = "it takes too long to compile"
NOT_KEPT_TO = "the answer so far violates it"
_IMPOSSIBLE = re.compile(r"\bNoExtension")
_TOO_LARGE = re.compile(r"\btoo (many|big|large|complex)\b|\bexceed|\bfuel\b|TooComplex|^panic\b", re.IGNORECASE)
"""A panic of llguidance is an assertion about its own limits."""


_NOT_APART = re.compile(r"\boneOf constraints are not supported")
_JSON = "%json"
_BLANKS = 1000
_LARK_LINE = re.compile(r"%llguidance\b|start[ \t]*:")
_CONVERT = (
    "import runpy, sys; sys.setrecursionlimit(1000); "
    "sys.stdout.write(runpy.run_path(sys.argv[1])['gbnf_to_lark'](sys.stdin.read()))"
)
CONVERSION_S = 5.0

_EXACT = 2**53
_VALUES = frozenset({"const", "enum", "default", "example", "examples"})
"""Keywords whose values are no schemas."""
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
        return LLMatcher.grammar_from_regex(whole(constraint.rule))
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
    """A grammar in Lark or GBNF as Lark; raises `ConstraintError`."""
    if not _is_lark(grammar):
        return _converted(grammar)
    states = sum(map(_remainders, _schemas_in(grammar)))
    if states > MOST_REMAINDERS:
        raise ConstraintError(f"multipleOf: {TOO_LARGE}")
    return grammar


def _is_lark(grammar: str) -> bool:
    """As llguidance tells, whose regular expression takes half a minute for 65,000 line breaks and holds the GIL."""
    lines = (line.strip() for line in grammar.split("\n"))
    return any(_LARK_LINE.match(line) for line in lines)


def _converted(grammar: str) -> str:
    """GBNF as Lark, by llguidance's own converter. It is written in Python, and the time that it takes grows with the
    square of the rules, so it runs in a process that can be ended.
    """
    source = importlib.util.find_spec("llguidance.gbnf_to_lark")
    assert source is not None
    assert source.origin is not None
    command = [sys.executable, "-I", "-S", "-c", _CONVERT, source.origin]
    try:
        done = subprocess.run(  # noqa: S603 - the grammar is its input, and no part of the command
            command, input=grammar.encode(), capture_output=True, timeout=CONVERSION_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConstraintError(TOO_SLOW) from None
    except (OSError, UnicodeEncodeError) as error:
        raise ConstraintError(f"a GBNF grammar cannot be converted here ({type(error).__name__})") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise ConstraintError(one_line(lines[-1].partition(": ")[2] if lines else ""))
    return done.stdout.decode()


def _schemas_in(grammar: str) -> Iterator[object]:
    """The JSON schemas in a grammar in Lark, as they are read: an escaped name is that name.

    Raises `ConstraintError` if one cannot be read, or has a name twice, of which llguidance might read the other one.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    at = grammar.find(_JSON)
    while at >= 0:
        begin = at + len(_JSON)
        begin += len(grammar[begin : begin + _BLANKS]) - len(grammar[begin : begin + _BLANKS].lstrip())
        try:
            schema, end = decoder.raw_decode(grammar, begin)
        except (ValueError, RecursionError):
            raise ConstraintError("%json: its schema cannot be read") from None
        yield schema
        at = grammar.find(_JSON, end)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def prepared(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as it is enforced; raises `ConstraintError`, and nothing else, if it cannot be."""
    try:
        is_too_large = _remainders(schema) > MOST_REMAINDERS
    except (ArithmeticError, ValueError):  # numbers that no decimal holds
        is_too_large = True
    if is_too_large:
        raise ConstraintError(f"multipleOf: {TOO_LARGE}")
    if (number := _inexact(schema)) is not None:
        raise ConstraintError(f"const, enum: {number} is beyond 2**53, where not every integer can be written")
    try:
        # this keyword would change llguidance's interpretation
        return closed(translated({name: value for name, value in schema.items() if name != "x-guidance"}))
    except RecursionError:
        raise ConstraintError(f"nesting: {TOO_LARGE}") from None
    except TooManyNamesError:
        raise ConstraintError(f"properties: {TOO_LARGE}") from None
    except TooManyPlacesError:
        raise ConstraintError(f"$ref: {TOO_LARGE}") from None


def _inexact(schema: object, levels: int = 64) -> int | None:
    """An integer in `const` or `enum` that llguidance, whose numbers are doubles, would write as another one."""
    if not isinstance(schema, dict | list) or not levels:
        return None
    if isinstance(schema, dict):
        listed = schema.get("enum")
        allowed = [schema.get("const"), *(listed if isinstance(listed, list) else ())]
        for one in allowed:
            if isinstance(one, int) and abs(one) > _EXACT:
                return one
    inner = [one for name, one in schema.items() if name not in _VALUES] if isinstance(schema, dict) else schema
    return next((found for one in inner if (found := _inexact(one, levels - 1)) is not None), None)


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
            waiting.extend(value for name, value in part.items() if name not in _VALUES)
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
    if _NOT_APART.search(text):
        return "oneOf: no type, and no constant of a required property, tells its choices apart; say anyOf"
    return limit_met(text) or one_line(text)


def step_error(text: str) -> str:
    """Why a constraint is no longer followed, without llguidance's internal details."""
    return limit_met(text.partition("<state>")[0]) or NOT_KEPT_TO
