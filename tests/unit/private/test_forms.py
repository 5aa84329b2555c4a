"""Forms of answers and placeholders; jsonschema is the oracle of what a value satisfies, llguidance of what a model may
write.
"""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest

from app.private.forms import MaskedForm
from app.private.mask import Mask
from app.private.value import PrivateValue
from models.interface.generation import ConstraintKind, OutputConstraint
from models.structured import ConstraintCompiler
from tests.unit.models import tiny

MAIL, CARD, ADDRESS = "nina@example.com", "4111 1111 1111 1111", "10.0.0.7"
VALUES = (
    PrivateValue("EMAIL_ADDRESS", MAIL),
    PrivateValue("CREDIT_CARD", CARD),
    PrivateValue("IP_ADDRESS", ADDRESS),
)
MASK = Mask(b"secret", "nina", VALUES)
RULES: list[dict[str, Any]] = [
    {"type": "string", "format": "email"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "date"},
    {"type": "string", "pattern": "^[a-z.]+@[a-z.]+$"},
    {"type": "string", "pattern": "^[0-9 ]+$"},
    {"type": "string", "maxLength": 16},
    {"type": "string", "minLength": 17},
    {"type": ["string", "null"], "format": "email", "maxLength": 20},
    {"type": "string", "enum": [MAIL, "other@example.com"]},
    {"type": "string"},
]


@pytest.fixture(scope="module")
def compiler() -> ConstraintCompiler:
    tokenizer = tiny.tokenizer()
    return ConstraintCompiler(tokenizer, len(tokenizer), frozenset({0}))


def may_write(compiler: ConstraintCompiler, constraint: OutputConstraint, text: str) -> bool:
    matcher = compiler.ask(constraint).result(60).copy()._matcher
    ids = tiny.tokenizer()(text, add_special_tokens=False).input_ids
    if matcher.validate_tokens(ids) < len(ids):
        return False
    for one in ids:
        matcher.consume_token(one)
    return bool(matcher.is_accepting())


@pytest.mark.parametrize("rule", RULES, ids=json.dumps)
def test_a_model_may_write_the_placeholder_of_a_value_that_a_schema_allows(
    compiler: ConstraintCompiler, rule: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": {"it": rule}, "required": ["it"]}
    seen = OutputConstraint(ConstraintKind.JSON, json.dumps(MaskedForm(MASK).schema(schema)))
    checker = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for one in VALUES:
        answer = json.dumps({"it": MASK.hide(one.value)})
        if checker.is_valid({"it": one.value}):
            assert may_write(compiler, seen, answer), one
        elif not rule.keys() <= {"type", "minLength"}:  # a placeholder is no shorter
            assert not may_write(compiler, seen, answer), one
    with_others = [{"it": "bob@example.org"}, {"it": "2026-01-01"}, {"it": "x"}]
    for other in with_others:
        plain = OutputConstraint(ConstraintKind.JSON, json.dumps(schema))
        assert may_write(compiler, seen, json.dumps(other)) == may_write(compiler, plain, json.dumps(other))


@pytest.mark.parametrize("rule", [r"[a-z.]+@[a-z.]+", r"[0-9]{4}( [0-9]{4}){3}|none", "none"])
def test_a_model_may_write_the_placeholder_of_a_value_that_a_regular_expression_allows(
    compiler: ConstraintCompiler, rule: str
) -> None:
    seen = OutputConstraint(ConstraintKind.REGEX, MaskedForm(MASK).regex(rule))
    plain = OutputConstraint(ConstraintKind.REGEX, rule)
    for value in (MAIL, CARD, ADDRESS, "none", "x"):
        assert may_write(compiler, seen, MASK.hide(value)) == may_write(compiler, plain, value)


def test_texts_and_names_of_a_schema_are_hidden_and_its_words_are_not() -> None:
    mask = Mask(b"s", "u", [*VALUES, PrivateValue("PERSON", "string"), PrivateValue("PERSON", "email")])
    schema = {
        "type": "object",
        "properties": {MAIL: {"type": "string", "format": "email", "description": f"of {MAIL}"}},
        "required": [MAIL],
    }
    seen = MaskedForm(mask).schema(schema)
    assert MAIL not in json.dumps(seen)
    (rule,) = seen["properties"].values()
    assert (rule["anyOf"][0]["type"], rule["anyOf"][0]["format"]) == ("string", "email")
    assert seen["required"] == [*seen["properties"]]


def test_a_pattern_that_never_ends_is_given_up_once() -> None:
    mask = Mask(b"s", "u", [PrivateValue("PERSON", "a" * 60 + str(number)) for number in range(64)])
    schema = {"type": "array", "prefixItems": [{"type": "string", "pattern": rf"^(a+)+{one}$"} for one in range(100)]}
    began = time.process_time()
    MaskedForm(mask).schema(schema)
    many = {"type": "object", "properties": {str(one): {"type": "string", "maxLength": 70} for one in range(20_000)}}
    assert len(json.dumps(MaskedForm(mask).schema(many))) < 3_000_000
    assert MaskedForm(mask).regex(r"(a+)+b") == r"(a+)+b"
    assert time.process_time() - began < 5  # each alone would take longer than the test
