"""The constants of an intake against the requests that are made of its records."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from msgspec import inspect

from app.foreign.mapping import request_of
from app.foreign.source import ForeignSource
from app.policy.constants import constant_bytes, constant_mistakes
from app.policy.foreign import IntakeRules
from app.wire.error import WireError
from app.wire.request import Request

PROMPT = {"prompt": "text"}
TOOL = '{ type = "function", function = { name = "find" } }'


def mistakes(constants: str, fields: dict[str, str] | None = None) -> list[str]:
    return [*constant_mistakes(tomllib.loads(constants), PROMPT if fields is None else fields)]


def made(constants: dict[str, Any], fields: dict[str, Any]) -> None:
    """A request of a record with these fields; raises `WireError`."""
    rules = IntakeRules(topic="t", fields={name: name for name in fields}, constants=constants, user_id="u")
    request_of(rules, fields, None, ForeignSource("t", 0, 0, 0), max_prompt_bytes=1000)


def ranges() -> Iterator[tuple[str, float, float]]:
    for field in inspect.type_info(Request).fields:
        for one in getattr(field.type, "types", ()):
            if isinstance(one, inspect.IntType | inspect.FloatType):
                yield field.name, one.ge, one.le


@pytest.mark.parametrize(("name", "least", "most"), list(ranges()))
def test_a_number_is_refused_exactly_where_each_record_would_be(name: str, least: float, most: float) -> None:
    for value in (least - 1, least, most):
        told = [*constant_mistakes({name: value}, PROMPT)]
        assert bool(told) == (value < least)
        with pytest.raises(WireError) if told else nullcontext() as refused:
            made({name: value}, {"prompt": "x"})
        assert refused is None or refused.value.message == f"the intake's constant {told[0]}"


@pytest.mark.parametrize(
    ("constants", "told"),
    [
        ("temperature = nan", "temperature: must be at least 0"),
        ("stop_when = { mean_logprob_below = 1.0, over = 3 }", "stop_when.mean_logprob_below: must be"),
        ("model = '" + "m" * 300 + "'", "model: must have at most 256 characters"),
        ("stop = ['']", "stop: each must have at least 1 characters"),
        ("logit_bias = { 50 = 1000.0 }", "logit_bias: each must be at most 100"),
        ("response_format = { type = 'regex' }", "response_format.regex: must be given"),
        ("prompt = ''", "prompt: is empty"),
        (f"metadata = {{ a = {'9' * 400} }}", "metadata: "),
        ("raw = true\nreasoning_effort = 'low'", "reasoning_effort: needs a chat template"),
        ("prompt = 'x'\nmessages = [{ role = 'user', content = 'x' }]", "exactly one of prompt and messages"),
        ("tool_choice = 'required'", "tool_choice: needs tools"),
        (f"tools = [{TOOL}, {TOOL}]", "tools: two have the same name"),
        (f"tools = [{TOOL}]\ntool_mode = 'kafka'\nbest_of = 2", "best_of: excludes tool_mode kafka"),
    ],
)
def test_what_no_record_can_mend_is_a_mistake(constants: str, told: str) -> None:
    (line,) = mistakes(constants)
    assert line.startswith(told)


def test_all_that_is_wrong_is_told_at_once() -> None:
    constants = "max_tokens = -1\ntop_p = 2.0\nseed = 'x'\nstop = ['']\nbest_of = 0\nmodel = 'right'\n"
    assert [line.partition(":")[0] for line in mistakes(constants)] == [
        "max_tokens",
        "top_p",
        "Expected `int | null`, got `str` - at `$.seed`",
        "stop",
        "best_of",
    ]
    tools = f"tools = [{TOOL}, {TOOL}]\ntool_choice = 'required'\ntemperature = 3.0"
    assert [line.partition(":")[0] for line in mistakes(tools)] == ["temperature", "tools"]


@pytest.mark.parametrize(
    ("constants", "fields"),
    [
        ("logit_bias = { 50 = 1.0 }\nmax_tokens = 40\npriority = 'batch'", ["prompt"]),
        ("tool_choice = 'required'\ntool_mode = 'kafka'", ["prompt", "tools"]),
        ("tool_choice = { type = 'function', function = { name = 'find' } }", ["messages", "tools"]),
        ("raw = true", ["messages", "prompt"]),
        ("continue_final_message = true", ["prompt", "messages"]),
        ("prompt = 'x'", ["user_id"]),
        ("model = 'small'", ["prompt_token_ids"]),
        ("model = 'small'", ["tool_results"]),
        ("tenant = 'acme'\nstore = false\ncache = false", ["prompt"]),
        ("[chat_template_kwargs]\nenable_thinking = false", ["prompt"]),
    ],
)
def test_what_a_record_can_complete_is_none(constants: str, fields: list[str]) -> None:
    assert mistakes(constants, {name: name for name in fields}) == []


def test_constants_have_the_bytes_of_their_prompt() -> None:
    assert constant_bytes({"prompt": "12345", "model": "m"}) == 5
    assert constant_bytes({"prompt": 5}) == 0
