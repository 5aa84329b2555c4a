from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from models.interface.generation import ConstraintKind, OutputConstraint
from models.structured import ConstraintCompiler, ConstraintError
from models.structured.tool_grammar import lark_of_tools
from models.tools import FORMATS, ModelTool, ToolCallParser, ToolChoice, ToolFormat, tool_constraint
from models.tools.format import ArgumentStyle
from models.tools.forms import bound
from models.tools.rule import tool_rule
from tests.unit.models.structured.schemas import random_schema
from tests.unit.models.structured.walks import check, constraints, matcher_of, tokenizer, walk
from tests.unit.models.tools.test_parser import cut, every_format, parse, written

ORDER = ModelTool("order_status", "", {"properties": {"order": {"type": "integer"}}, "required": ["order"]})
HELP = ModelTool("help", "", {"properties": {}})
OBJECT = {"type": "object", "properties": {"help": {"type": "boolean"}}, "required": ["help"]}


@pytest.fixture
def kept() -> Iterator[ConstraintCompiler]:
    made = constraints()
    yield made
    made.stop()


def accepts(kept: ConstraintCompiler, constraint: OutputConstraint, text: str) -> bool:
    """Whether the text is a whole answer."""
    matcher = matcher_of(kept, constraint)
    ids = tokenizer()(text, add_special_tokens=False).input_ids
    if matcher.allowed_count(ids) < len(ids):
        return False
    for token in ids:
        matcher.advance(token)
    return bool(matcher._matcher.is_accepting())


def parameters(seed: int) -> dict[str, Any]:
    schema = random_schema(seed)
    parts = schema.pop("$defs", {})
    properties = {"value": schema, "note": {"enum": ["a", "b"]}}
    return {"type": "object", "properties": properties, "required": ["value"], "$defs": parts}


def valid_calls(kept: ConstraintCompiler, form: ToolFormat, seeds: range) -> int:
    """Random answers with required tools: how many came to an end. Each call of them is checked."""
    ended = 0
    for seed in seeds:
        tools = [
            ModelTool(f"tool_{number}", "", parameters(seed + number), is_strict=True) for number in range(seed % 2 + 1)
        ]
        try:
            matcher = matcher_of(kept, tool_constraint(form, tools, ToolChoice.REQUIRED, is_single=True))
        except ConstraintError:
            assert form.arguments is not ArgumentStyle.JSON
            continue
        text = walk(matcher, seed)
        if text is None:
            continue
        ended += 1
        parser = ToolCallParser(form.reading(tools))
        assert parser.step(text)[0] == ""
        (call,) = parser.calls
        (schema,) = (tool.parameters for tool in tools if tool.name == call.name)
        check(json.loads(call.arguments), dict(schema))
    return ended


@every_format
def test_required_calls_conform_to_their_tools(kept: ConstraintCompiler, form: ToolFormat) -> None:
    assert valid_calls(kept, form, range(12)) >= (9 if form.arguments is ArgumentStyle.JSON else 5)


@pytest.mark.slow
@every_format
def test_calls_of_a_thousand_required_tools_conform(kept: ConstraintCompiler, form: ToolFormat) -> None:
    assert valid_calls(kept, form, range(250)) >= (200 if form.arguments is ArgumentStyle.JSON else 100)


@every_format
def test_auto_allows_text_or_complete_calls_of_known_tools(kept: ConstraintCompiler, form: ToolFormat) -> None:
    constraint = tool_constraint(form, [ORDER, HELP])
    assert accepts(kept, constraint, "Hello Nina! 1 < 2")
    assert accepts(kept, constraint, "")
    assert accepts(kept, constraint, written(form, ("order_status", '{"order": 4711}')))
    assert accepts(kept, constraint, written(form, ("order_status", '{"order": 4711}'), ("help", "{}")))
    assert accepts(kept, constraint, "One moment. " + written(form, ("help", "{}"))) or not form.leads
    for wrong in (("order_status", '{"order": "x"}'), ("order_status", "{}"), ("help", '{"a": 1}')):
        assert not accepts(kept, constraint, written(form, wrong))
    other = written(form, ("other", "{}"))
    if form.commits:
        assert not accepts(kept, constraint, other)
    else:
        assert parse(form.reading([ORDER, HELP]), [other]) == (other, [], [])


@every_format
def test_single_allows_one_call_and_required_no_text(kept: ConstraintCompiler, form: ToolFormat) -> None:
    both = written(form, ("help", "{}"), ("help", "{}"))
    one = written(form, ("help", "{}"))
    required = tool_constraint(form, [HELP], ToolChoice.REQUIRED)
    single = tool_constraint(form, [HELP], is_single=True)
    assert (accepts(kept, required, both), accepts(kept, single, both)) == (True, False)
    assert (accepts(kept, required, one), accepts(kept, single, one)) == (True, True)
    assert not accepts(kept, required, "Hello")


@every_format
def test_an_answer_without_calls_has_the_form_of_the_response_format(
    kept: ConstraintCompiler, form: ToolFormat
) -> None:
    constraint = tool_constraint(form, [ORDER], content=OutputConstraint(ConstraintKind.JSON, json.dumps(OBJECT)))
    assert accepts(kept, constraint, '{"help": true}')
    assert accepts(kept, constraint, written(form, ("order_status", '{"order": 1}')))
    assert not accepts(kept, constraint, "Hello")
    yes = tool_constraint(form, [ORDER], content=OutputConstraint(ConstraintKind.CHOICES, '["yes", "no"]'))
    assert (accepts(kept, yes, "yes"), accepts(kept, yes, "maybe")) == (True, False)
    digits = tool_constraint(form, [ORDER], content=OutputConstraint(ConstraintKind.REGEX, "[0-9]+/[0-9]"))
    assert (accepts(kept, digits, "12/1"), accepts(kept, digits, "a")) == (True, False)


def test_a_schema_that_is_too_large_is_refused(kept: ConstraintCompiler) -> None:
    large = ModelTool("f", "", {"properties": {"a": {"type": "integer", "multipleOf": 999983}}}, is_strict=True)
    with pytest.raises(ConstraintError, match="multipleOf"):
        matcher_of(kept, tool_constraint(FORMATS["json"], [HELP, large]))


@pytest.mark.parametrize(
    ("schema", "reported"),
    [
        ({"multipleOf": int("1" * 310)}, "bad: multipleOf: it is too large"),
        ({"multipleOf": 1e-300}, "bad: it is too large"),
        ({"type": "strin"}, "bad: .*strin"),
        ({"not": {"multipleOf": 3}}, "bad: .*not"),
        ({"type": "string", "pattern": "(a"}, "bad: .*(pattern|group)"),
        ({"$ref": "http://127.0.0.1/schema"}, "bad: .*127.0.0.1"),
        (functools.reduce(lambda inner, _: {"items": inner}, range(2000), {}), "cannot be written as JSON"),
    ],
)
def test_the_strict_tool_that_cannot_be_followed_is_named(
    kept: ConstraintCompiler, schema: dict[str, Any], reported: str
) -> None:
    bad = ModelTool("bad", "", {"type": "object", "properties": {"x": schema}}, is_strict=True)
    for form in FORMATS.values():
        with pytest.raises(ConstraintError, match=reported) as caught:
            matcher_of(kept, tool_constraint(form, [ORDER, bad, HELP]))
        assert "\n" not in str(caught.value)
        assert "arguments_" not in str(caught.value)  # a rule of the grammar, which nobody has sent


@pytest.mark.filterwarnings("ignore:Possible")
@every_format
@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"^(?!\.)[a-z.]{1,20}$", ["ab", "a.", "..", "."]),
        (r"^a|b$", ["ax", "xb", "x"]),
        (r"^(a|b)$|^c$", ["a", "c", "d"]),
        (r"^{{[[ab]+}}$", ["{{[a}}", "ab"]),
    ],
)
def test_a_text_matches_its_pattern_however_the_form_writes_it(
    kept: ConstraintCompiler, form: ToolFormat, pattern: str, texts: list[str]
) -> None:
    schema = {"type": "object", "properties": {"v": {"type": "string", "pattern": pattern}}, "required": ["v"]}
    constraint = tool_constraint(form, [ModelTool("t", "", schema, is_strict=True)])
    for text in texts:
        call = written(form, ("t", json.dumps({"v": text})))
        assert accepts(kept, constraint, call) == (re.search(pattern, text) is not None), text


SPACES = (
    "a\nb",
    "\n",
    "\na\n",
    "a\r\nb",
    "a\tb",
    "a\u2028b",
    "a\u0085b",
    "\x0b\x0c",
    " a ",
    "a\\nb",
    "a\\\nb",
    "日本\nनम",
)


@every_format
@pytest.mark.parametrize("rule", [lambda one: {"const": one}, lambda one: {"enum": [one, 7]}], ids=["const", "enum"])
def test_a_value_with_white_space_is_written_as_the_schema_has_it(
    kept: ConstraintCompiler, form: ToolFormat, rule: Callable[[str], dict[str, Any]]
) -> None:
    for seed, value in enumerate(SPACES):
        schema = {"type": "object", "properties": {"v": {"type": "string", **rule(value)}}, "required": ["v"]}
        tools = [ModelTool("t", "", schema, is_strict=True)]
        constraint = tool_constraint(form, tools, ToolChoice.REQUIRED, is_single=True)
        assert accepts(kept, constraint, written(form, ("t", json.dumps({"v": value}, ensure_ascii=False))))
        forced = walk(matcher_of(kept, constraint), seed)
        assert forced is not None
        parser = ToolCallParser(form.reading(tools))
        parser.step(forced)
        assert [json.loads(call.arguments) for call in parser.calls] == [{"v": value}]


NOTHING_SAID: tuple[dict[str, Any], ...] = (
    {},
    {"type": "object"},
    {"type": "object", "properties": None},
    {"type": ["object", "null"], "properties": {}, "required": [], "description": "none"},
    {"properties": {}, "additionalProperties": None},
    {"type": "object", "additionalProperties": False},
)
OPEN: tuple[dict[str, Any], ...] = ({"type": "object", "additionalProperties": True}, {"additionalProperties": {}})


@every_format
def test_a_tool_whose_parameters_say_nothing_has_none(kept: ConstraintCompiler, form: ToolFormat) -> None:
    for parameters in (*NOTHING_SAID, *OPEN):
        constraint = tool_constraint(form, [ModelTool("now", "", parameters)], ToolChoice.REQUIRED)
        assert accepts(kept, constraint, written(form, ("now", "{}"))), parameters
        invented = written(form, ("now", '{"invented": 1}'))
        assert accepts(kept, constraint, invented) == (parameters in OPEN), parameters


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"https?:\/\/[a-z]+", "https://abc"), (r"a\\/b", "a\\/b"), ("x\n/y", "x\n/y"), (r"[/]\\\/", "/\\/")],
)
def test_a_regex_beside_tools_is_the_one_alone(kept: ConstraintCompiler, pattern: str, text: str) -> None:
    rule = OutputConstraint(ConstraintKind.REGEX, pattern)
    assert accepts(kept, rule, text)
    assert accepts(kept, tool_constraint(FORMATS["json"], [ORDER], content=rule), text)


@every_format
def test_a_tool_that_cannot_be_followed_takes_any_object_and_the_others_keep_their_schemas(
    kept: ConstraintCompiler, form: ToolFormat
) -> None:
    bad = ModelTool("bad", "", {"type": "object", "properties": {"x": {}}, "not": {"minProperties": 3}})
    constraint = tool_constraint(form, [ORDER, bad])
    assert accepts(kept, constraint, written(form, ("bad", '{"x": 1, "y": [null]}')))
    assert accepts(kept, constraint, written(form, ("order_status", '{"order": 1}')))
    assert not accepts(kept, constraint, written(form, ("order_status", '{"order": "x"}')))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["json", "llama"])
def test_a_whole_answer_may_have_space_a_fence_and_the_type_of_its_call(
    kept: ConstraintCompiler, name: str, seed: int
) -> None:
    form = FORMATS[name]
    constraint = tool_constraint(form, [ORDER])
    call, wrong = (written(form, ("order_status", arguments)) for arguments in ('{"order": 4711}', '{"order": "x"}'))
    for kind in ("", '"type": "function", '):
        for before, after in (("", ""), (" ", ""), ("\n", ""), ("```json\n", "\n```"), ("```\n", "\n```")):
            text = before + call.replace('{"name"', f'{{{kind}"name"', 1) + after
            assert accepts(kept, constraint, text), text
            said, calls, _ = parse(form, cut(text, seed))
            assert (said, calls) == ("", [("order_status", '{"order": 4711}')]), text
            assert not accepts(kept, constraint, text.replace(call[-10:], wrong[-10:])), text
    for text in (
        '\n{"answer": 42}',
        '```json\n{"type": "function"}\n```',
        "```python\nprint()\n```",
        ' {"type": "x"}',
        "``",
    ):
        assert accepts(kept, constraint, text), text
        assert parse(form, cut(text, seed))[:2] == (text, []), text


@pytest.mark.parametrize("name", ["json", "llama"])
def test_an_answer_may_begin_like_json_while_tools_are_on_offer(kept: ConstraintCompiler, name: str) -> None:
    constraint = tool_constraint(FORMATS[name], [ORDER])
    for text in ('{"order": 4711}', "{", "{}", '{"name', '{"names": []}', '{ "name": 1}', "[1]", '{"name":1}'):
        assert accepts(kept, constraint, text), text
        parser = ToolCallParser(FORMATS[name])
        assert parser.step(text)[0] + parser.finish() == text
    assert accepts(kept, constraint, written(FORMATS[name], ("order_status", '{"order": 1}')))
    assert not accepts(kept, constraint, written(FORMATS[name], ("order_status", '{"order": "1"}')))


@pytest.mark.parametrize("name", ["json", "llama"])
def test_a_call_may_follow_the_reasoning_in_which_an_answer_begins(kept: ConstraintCompiler, name: str) -> None:
    form = bound(FORMATS[name], {}, "</think>")
    call = written(form, ("order_status", '{"order": 1}'))
    wrong = written(form, ("order_status", '{"order": "1"}'))
    auto, required = (tool_constraint(form, [ORDER], choice) for choice in ToolChoice)
    thought = 'The user says {"name": "x"} so I look it up.\n</think>'
    assert accepts(kept, auto, f"{thought}\n\n{call}")
    assert accepts(kept, auto, f"{thought}{call}")
    assert accepts(kept, auto, f"{thought}\n\nIt has arrived. {{}}")
    assert accepts(kept, auto, f"{thought}\n\n")
    assert accepts(kept, auto, "I am still")
    assert not accepts(kept, auto, f"{thought}\n\n{wrong}")
    assert (accepts(kept, required, f"{thought}\n{call}"), accepts(kept, required, f"{thought}\nNo")) == (True, False)
    for seed in range(20):
        text, calls, _ = parse(form, cut(f"{thought}\n\n{call}", seed))
        assert (text, calls) == (f"{thought}\n\n", [("order_status", '{"order": 1}')])


def test_tools_that_are_too_large_together_are_refused_in_plain_words(kept: ConstraintCompiler) -> None:
    one = {"type": "object", "properties": {f"p{number}": {"enum": ["x" * 10]} for number in range(2000)}}
    # On a busy machine the time runs out first.
    with pytest.raises(ConstraintError, match=r"they cannot be followed together|it takes too long"):
        matcher_of(kept, tool_constraint(FORMATS["hermes"], [ModelTool(f"t{number}", "", one) for number in range(14)]))


@every_format
def test_a_grammar_is_written_whatever_a_tool_that_is_not_strict_asks_for(form: ToolFormat) -> None:
    """For engines that compile it by themselves."""
    odd = {"type": "object", "properties": {"a b>": {"type": "integer"}}, "anyOf": [{"required": ["a b>"]}]}
    assert lark_of_tools(tool_rule(tool_constraint(form, [ORDER, ModelTool("odd", "", odd)])))
    if form.arguments is not ArgumentStyle.JSON:
        with pytest.raises(ConstraintError, match="odd: anyOf"):
            lark_of_tools(tool_rule(tool_constraint(form, [ModelTool("odd", "", odd, is_strict=True)])))


def test_a_megabyte_of_tools_costs_its_caller_next_to_nothing() -> None:
    """The grammar is written by the compiler's thread: the rule is some encoding, measured against Python's own."""
    properties = {f"property_{number}": {"type": "string", "description": "d" * 40} for number in range(100)}
    tools = [ModelTool(f"tool_{number}", "", {"type": "object", "properties": properties}) for number in range(128)]
    began = time.process_time()
    constraint = tool_constraint(FORMATS["hermes"], tools)
    taken = time.process_time() - began
    assert len(constraint.rule) > 900_000
    began = time.process_time()
    lark_of_tools(tool_rule(constraint))
    assert taken < time.process_time() - began
