"""Any call comes back as it was written, in every form and however the text is cut. Python's own reader is the oracle
of what Python writes.
"""

from __future__ import annotations

import ast
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.tools import FORMATS, ModelTool, ToolCallParser, ToolFormat
from models.tools.format import ArgumentStyle
from models.tools.values import json_of, json_of_literal, literal_of, types_of
from tests.unit.models.tools.test_parser import every_format, parse

KEYS = {"text": "string", "count": "integer", "ratio": "number", "yes": "boolean", "none": "null"}
KEYS |= {"items": "array", "table": "object"}
PROPERTIES = {**{key: {"type": name} for key, name in KEYS.items()}, "maybe": {"type": ["string", "null"]}}
TOOLS = [ModelTool(name, "", {"type": "object", "properties": PROPERTIES}) for name in ("get_it", "other-tool", "f.2")]
MARKS = [
    "</parameter>",
    "\n</parameter>\n",
    "</tool_call>",
    "<arg_key>",
    "</arg_value>",
    "[TOOL_CALLS]",
    ")]",
    "', x=1)",
]
MARKS += ['"', "\\", "\\n", "'''", "{}", "]", "None", "ü", "🙂", "\u2028", "\x00", "\r\n", "<parameter=", "\n", ", "]

texts = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=5)), max_size=5).map("".join)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, width=32), texts)
scalars = scalars.filter(lambda value: not isinstance(value, float) or abs(value) < 1e30)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "count": st.integers(-(2**40), 2**40),
        "ratio": st.floats(-1e6, 1e6, width=32),
        "yes": st.booleans(),
        "none": st.none(),
        "items": st.lists(values, max_size=3),
        "table": st.dictionaries(texts, values, max_size=3),
        "maybe": st.none() | texts.filter(lambda text: text.strip() not in {"null", "None"}),
    },
)
calls = st.lists(st.tuples(st.sampled_from([tool.name for tool in TOOLS]), arguments), min_size=1, max_size=3)


def is_writable(form: ToolFormat, asked: list[tuple[str, dict[str, Any]]]) -> bool:
    """Whether no text has what ends a value between tags, which nothing can escape."""
    texts = [one for _, values in asked for one in values.values() if isinstance(one, str)]
    for end in (form.value_end + form.key, form.value_end + form.closing):
        if form.arguments is ArgumentStyle.TAGGED and any((one + end).find(end) < len(one) for one in texts):
            return False
    return True


@every_format
@settings(max_examples=60, deadline=None)
@given(asked=calls, size=st.integers(1, 9))
@example(asked=[("get_it", {"text": "a</parameter>b\n</parameter>\nc"}), ("f.2", {})], size=1)
@example(asked=[("get_it", {"text": ""}), ("get_it", {"maybe": None, "yes": True})], size=1)
def test_calls_come_back_as_they_were_written(form: ToolFormat, asked: list[Any], size: int) -> None:
    if not is_writable(form, asked):
        return
    text = form.written([(name, json.dumps(one, ensure_ascii=False)) for name, one in asked])
    said, found, deltas = parse(form.reading(TOOLS), [text[at : at + size] for at in range(0, len(text), size)])
    assert said == ""
    assert [(name, json.loads(one)) for name, one in found] == asked
    for number, (name, one) in enumerate(found):
        own = [delta for delta in deltas if delta.index == number]
        assert (own[0].name, "".join(delta.arguments for delta in own)) == (name, one)


@every_format
def test_what_is_read_does_not_depend_on_the_pieces(form: ToolFormat) -> None:
    one = {"text": 'a "b" \\ </parameter>\n', "count": 3, "items": [1, {"x": None}], "maybe": "ü🙂"}
    text = form.written([("get_it", json.dumps(one)), ("f.2", "{}")]) + " more"
    whole = parse(form.reading(TOOLS), [text])
    for at in range(len(text)):
        cut = parse(form.reading(TOOLS), [text[:at], text[at:]])
        assert cut[:2] == whole[:2]
    assert parse(form.reading(TOOLS), list(text))[:2] == whole[:2]


def test_a_long_text_between_tags_reaches_its_reader_while_it_is_written() -> None:
    form = FORMATS["qwen_coder"].reading(TOOLS)
    parser = ToolCallParser(form)
    parser.step(form.beginning("get_it") + "<parameter=text>\n")
    heard = ["".join(one.arguments for one in parser.step(part)[1]) for part in ("a\n", "b", "\n</param", "eter> c")]
    assert heard == ["a", "\\nb", "", "\\n</parameter> c"]


@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("5", {"type": "string"}, "5"),
        ("5", {"type": "integer"}, 5),
        ("5", {"type": "number"}, 5),
        ("5", {}, 5),
        ("True", {"type": "boolean"}, True),
        ("true", {"type": "boolean"}, True),
        ("true", {"type": "string"}, "true"),
        ("None", {"type": ["string", "null"]}, None),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("nullable", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "nullable"),
        ("5", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "5"),
        ('{"a": 1}', {"type": "string"}, '{"a": 1}'),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("{'a': True}", {"type": "object"}, {"a": True}),
        ("[1, ", {"type": "array"}, "[1, "),
        ("b", {"enum": ["a", "b", 3]}, "b"),
        ("3", {"enum": ["a", "b", 3]}, 3),
        ("3", {"$ref": "#/$defs/n"}, 3),
        ("3", {"allOf": [{"$ref": "#/$defs/s"}]}, "3"),
        ("1e999", {"type": "number"}, "1e999"),
        ("9" * 6000, {"type": "string"}, "9" * 6000),
        ("[" * 9000, {"type": "array"}, "[" * 9000),
        (" 5\n", {"type": "integer"}, 5),
        (" x\n", {"type": "string"}, " x\n"),
    ],
)
def test_the_schema_says_what_a_plain_text_is(text: str, schema: dict[str, Any], expected: Any) -> None:
    root = {"$defs": {"n": {"type": "integer"}, "s": {"type": "string"}}}
    assert json.loads(json_of(text, types_of(schema, root))) == expected


@settings(max_examples=200, deadline=None)
@given(value=values)
def test_literals_are_pythons(value: Any) -> None:
    assert ast.literal_eval(literal_of(value)) == value
    assert json.loads(json_of_literal(repr(value)) or "") == value


@pytest.mark.parametrize("text", ["x", "f()", "b'a'", "{1, 2}", "1e999", "'\\ud800'", "1 + 1", "", "[" * 9000, "'a"])
def test_what_is_no_value_of_json_is_none(text: str) -> None:
    assert json_of_literal(text) is None


@pytest.mark.parametrize(
    "text", ["[1, 2]", "[see", "[", "[get_it", "[get_it (x", "[unknown(x=1)]", "[get_it(1)]", "[get_it(x=y)]"]
)
def test_text_that_begins_like_a_call_of_python_stays_text(text: str) -> None:
    form = FORMATS["pythonic"].reading(TOOLS)
    assert parse(form, list(text))[:2] == (text, [])
    assert parse(form, [text])[:2] == (text, [])


def test_a_form_that_is_read_keeps_all_else() -> None:
    for form in FORMATS.values():
        assert dataclasses.replace(form.reading(TOOLS), schemas={}) == form
