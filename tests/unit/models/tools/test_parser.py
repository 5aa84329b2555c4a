from __future__ import annotations

import random

import pytest

from models.tools import FORMATS, CallDelta, ToolCallParser, ToolFormat

every_format = pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS.keys())
ARGUMENTS = ['{"a": 1}', "{}", '{"text": "brace } quote \\" and \\\\", "b": [1, {"c": "]"}]}']


def written(form: ToolFormat, *calls: tuple[str, str]) -> str:
    return form.written(calls)


def parse(form: ToolFormat, pieces: list[str]) -> tuple[str, list[tuple[str, str]], list[CallDelta]]:
    parser = ToolCallParser(form)
    text, deltas = "", []
    for piece in pieces:
        part, more = parser.step(piece)
        text += part
        deltas += more
    return text + parser.finish(), [(call.name, call.arguments) for call in parser.calls], deltas


def cut(text: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    pieces = []
    while text:
        size = rng.randint(1, 7)
        pieces.append(text[:size])
        text = text[size:]
    return pieces


@every_format
@pytest.mark.parametrize("seed", range(20))
def test_calls_are_read_however_the_text_is_cut(form: ToolFormat, seed: int) -> None:
    calls = [(f"tool_{number}", arguments) for number, arguments in enumerate(ARGUMENTS)]
    lead = "Let me see. < [T " if form.leads else ""
    text, found, deltas = parse(form, cut(lead + written(form, *calls), seed))
    assert (text, found) == (lead, calls)
    for number, (name, arguments) in enumerate(calls):
        own = [delta for delta in deltas if delta.index == number]
        assert own[0].name == name
        assert [delta.name for delta in own[1:]] == [""] * (len(own) - 1)
        assert "".join(delta.arguments for delta in own) == arguments


@every_format
@pytest.mark.parametrize("text", ["Hello Nina!", "", '{"name', '{"nam": 1}', "a < b [TOOL", "<tool_cal", '[{"a": 1}]'])
def test_text_without_calls_passes_unchanged(form: ToolFormat, text: str) -> None:
    for seed in range(5):
        assert parse(form, cut(text, seed)) == (text, [], [])


def test_text_is_passed_on_at_once_unless_it_may_begin_a_call() -> None:
    parser = ToolCallParser(FORMATS["hermes"])
    assert parser.step("Hello <") == ("Hello ", ())
    assert parser.step("b> and <tool_") == ("<b> and ", ())
    assert parser.finish() == "<tool_"


@every_format
def test_a_call_that_is_cut_short_is_neither_a_call_nor_text(form: ToolFormat) -> None:
    whole = written(form, ("first", "{}"), ("second", '{"a": 1}'))
    begun = len(form.trigger if form.commits else form.beginning("first"))
    for end in range(begun, len(whole) - len(form.closing) - len(form.end)):
        text, calls, _ = parse(form, cut(whole[:end], end))
        assert text == ""
        assert calls in ([], [("first", "{}")])


@every_format
def test_text_that_leaves_the_form_is_text_again(form: ToolFormat) -> None:
    wrong = f"{form.trigger}{form.opening}nothing of the kind"
    assert parse(form, cut(wrong, 1)) == (wrong, [], [])
