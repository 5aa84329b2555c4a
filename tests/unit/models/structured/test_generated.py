"""Schemas as generators write them are accepted, and a random model that is held to one writes what it describes.

Oracles: jsonschema with the schema as it was written, llguidance with the same where it can read it, and the model of
pydantic, which reads the answer.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator, validators
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from pydantic import BaseModel, ValidationError

from models.interface.generation import ConstraintKind, OutputConstraint
from models.structured import ConstraintCompiler, ConstraintError
from models.structured.grammar import WHITESPACE
from models.tools import FORMATS, ModelTool, ToolCallParser, ToolChoice, tool_constraint
from tests.unit.models.structured.generated import Schema, model_of, schemas_of
from tests.unit.models.structured.walks import FORMATS as CHECKED
from tests.unit.models.structured.walks import matcher_of, tokenizer, walk

GENERATORS = {"pydantic": 170, "mcp": 100, "openapi": 100, "zod": 180}
"""How many schemas of each are tried in the long run."""
SHORT = range(12)
NOT_FOLLOWED = ("look-around", 'Unimplemented keys: ["not"]', "Unsatisfiable schema", "it can never be satisfied")
"""What llguidance cannot follow, or nobody could."""
UNSAID = {"time_delta_parsing", "date_parsing", "datetime_parsing", "datetime_from_date_parsing", "time_parsing"}
UNSAID |= {"union_tag_not_found", "decimal_parsing"}
"""Errors of pydantic about what its schemas do not say: how large a duration may be, how exact a time, that a
text is a decimal, and that a discriminator with a default must be there."""
every_generator = pytest.mark.parametrize("generator", GENERATORS)


def json_of(schema: Schema) -> OutputConstraint:
    return OutputConstraint(ConstraintKind.JSON, json.dumps(schema))


def check(value: Any, schema: Schema) -> None:
    """`uniqueItems` is left out, which no grammar can express, and `nullable` is OpenAPI's."""
    text = json.dumps(schema)
    draft = Draft4Validator if '"exclusiveMinimum": true' in text or '"exclusiveMaximum": true' in text else None
    draft = draft or (Draft7Validator if '"items": [' in text else None)
    known = draft or validators.validator_for(schema, default=Draft202012Validator)
    rule = known.VALIDATORS["type"]

    def typed(validator: Any, types: Any, instance: Any, within: Any) -> Any:
        return () if instance is None and within.get("nullable") else rule(validator, types, instance, within)

    lenient = validators.extend(known, {"uniqueItems": None, "type": typed})
    lenient(schema, format_checker=CHECKED).validate(value)


def second_opinion(text: str, schema: Schema) -> bool | None:
    """Of llguidance with the schema as it was written; None where it cannot read that."""
    tokens = from_tokenizer(tokenizer(), len(tokenizer()))
    try:
        matcher = LLMatcher(tokens, LLMatcher.grammar_from_json_schema(schema, overrides=WHITESPACE), log_level=0)
    except ValueError:
        return None
    if matcher.is_error():
        return None
    ids = tokenizer()(text, add_special_tokens=False).input_ids
    return matcher.validate_tokens(ids) == len(ids) and matcher.consume_tokens(ids) and matcher.is_accepting()


def errors_of(model: type[BaseModel], text: str) -> set[str]:
    try:
        model.model_validate_json(text)
    except ValidationError as error:
        return {one["type"] for one in error.errors()}
    return set()


def tried(kept: ConstraintCompiler, generator: str, seeds: range) -> tuple[int, int]:
    """How many schemas were accepted, and how many random answers to them came to an end, each of which is checked."""
    accepted, ended = 0, 0
    for seed, schema in zip(seeds, schemas_of(generator, seeds), strict=True):
        try:
            matcher = matcher_of(kept, json_of(schema))
        except ConstraintError as refused:
            if not any(reason in str(refused) for reason in NOT_FOLLOWED):
                raise
            continue
        accepted += 1
        text = walk(matcher, seed)
        if text is None:
            continue
        ended += 1
        try:
            check(json.loads(text), schema)
        except jsonschema.ValidationError as error:
            raise AssertionError((seed, error.message, text)) from error
        assert second_opinion(text, schema) is not False, (seed, text)
        if generator == "pydantic":
            assert errors_of(model_of(seed), text) <= UNSAID, (seed, text)
    return accepted, ended


@every_generator
def test_some_schemas_of_each_generator(kept: ConstraintCompiler, generator: str) -> None:
    accepted, ended = tried(kept, generator, SHORT)
    assert accepted >= len(SHORT) - 2
    assert ended >= len(SHORT) - 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
@every_generator
def test_five_hundred_schemas(kept: ConstraintCompiler, generator: str) -> None:
    count = GENERATORS[generator]
    accepted, ended = tried(kept, generator, range(count))
    print(f"{generator}: {accepted} of {count} accepted, {ended} answers came to an end")
    assert accepted >= 0.85 * count
    assert ended >= 0.75 * count


@every_generator
def test_tools_with_such_schemas_are_called_rightly(kept: ConstraintCompiler, generator: str) -> None:
    form = FORMATS["hermes"]
    ended = 0
    for seed, schema in zip(SHORT, schemas_of(generator, SHORT), strict=True):
        tools = [ModelTool("run", "", schema, is_strict=True)]
        try:
            matcher = matcher_of(kept, tool_constraint(form, tools, ToolChoice.REQUIRED, is_single=True))
        except ConstraintError:
            continue
        text = walk(matcher, seed)
        if text is not None:
            ended += 1
            parser = ToolCallParser(form.reading(tools))
            parser.step(text)
            (call,) = parser.calls
            check(json.loads(call.arguments), schema)
    assert ended > len(SHORT) // 2
