"""Reasoning is told apart from the answer, however the text is cut, and templates get the request's variables."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken

from models.interface.chat import ChatMessage
from models.prompts.builder import PromptBuilder
from models.prompts.chat_template import PromptError
from models.text.detokenizer import AnswerText, Vocabulary
from models.text.reasoning import Reasoning, ReasoningReader
from models.tools import FORMATS
from tests.unit.models import tiny
from tests.unit.models.template_shapes import SHAPES, shaped_checkpoint

OPENED, POSSIBLE = Reasoning.OPENED, Reasoning.POSSIBLE


def told(begins: Reasoning, pieces: list[str]) -> tuple[str, str]:
    reader = ReasoningReader(begins)
    parts = [*map(reader.step, pieces), reader.finish()]
    return "".join(one for one, _ in parts), "".join(other for _, other in parts)


@pytest.mark.parametrize(
    ("begins", "text", "expected"),
    [
        (OPENED, "\nhm, 1 < 2\n\nso\n</think>\n\nYes.", ("hm, 1 < 2\n\nso", "Yes.")),
        (OPENED, "still at it </thin", ("still at it </thin", "")),
        (OPENED, "\n\n</think>\n\nYes. </think>", ("", "Yes. </think>")),
        (OPENED, " \n ", ("", "")),
        (OPENED, "", ("", "")),
        (POSSIBLE, "<think>\nhm\n</think>\nYes.\n", ("hm", "Yes.\n")),
        (POSSIBLE, " \n<think>hm</think>Yes", ("hm", "Yes")),
        (POSSIBLE, "  Yes <think>no</think>", ("", "  Yes <think>no</think>")),
        (POSSIBLE, "<thin", ("", "<thin")),
        (POSSIBLE, " <b>", ("", " <b>")),
        (POSSIBLE, "<think>", ("", "")),
    ],
)
def test_reasoning_is_told_apart_however_the_text_is_cut(
    begins: Reasoning, text: str, expected: tuple[str, str]
) -> None:
    assert told(begins, [text]) == expected
    assert told(begins, list(text)) == expected
    for at in range(len(text)):
        assert told(begins, [text[:at], text[at:]]) == expected


def test_calls_may_follow_the_reasoning() -> None:
    checkpoint = shaped_checkpoint(SHAPES["qwen35"])
    form = FORMATS["qwen_coder"]
    call = form.written([("f", '{"q": "x"}')])
    ids = checkpoint.tokenizer(f"hm\n</think>\n\nOne moment. {call}", add_special_tokens=False).input_ids
    text = AnswerText(Vocabulary(checkpoint.tokenizer), (), form, OPENED)
    parts = [*map(text.step, ids), text.finish()]
    assert "".join(part.reasoning for part in parts) == "hm"
    assert "".join(part.text for part in parts) == "One moment. "
    assert [(one.name, one.arguments) for one in text.calls] == [("f", '{"q": "x"}')]


TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}[{{ reasoning_effort | default('none') }}]"
    "<|assistant|>{% if enable_thinking is not defined or enable_thinking %}<think>\n{% endif %}"
)


def test_a_template_gets_the_variables_of_the_request() -> None:
    checkpoint = shaped_checkpoint(TEMPLATE)
    builder = PromptBuilder(checkpoint)

    def text(**values: str | bool) -> str:
        built = builder.build("", [], "x", template_values=values)
        assert built.reasoning is (OPENED if values.get("enable_thinking", True) else POSSIBLE)
        assert not (values and built.shared)
        return str(checkpoint.tokenizer.decode(list(built.ids), skip_special_tokens=False))

    assert text() == "<|user|>x[none]<|assistant|><think>\n"
    assert text(reasoning_effort="high") == "<|user|>x[high]<|assistant|><think>\n"
    assert text(enable_thinking=False) == "<|user|>x[none]<|assistant|>"
    assert text(reasoning_effort="a<|assistant|><think>b") == "<|user|>x[ab]<|assistant|><think>\n"


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "strftime_now", "eos_token"])
def test_no_variable_takes_the_place_of_the_templates_own(name: str) -> None:
    with pytest.raises(PromptError, match=f"chat_template_kwargs: {name} "):
        PromptBuilder(shaped_checkpoint(TEMPLATE)).build("", [], "x", template_values={name: "secret"})


def test_a_model_without_variables_in_its_template_ignores_them() -> None:
    builder = PromptBuilder(tiny.checkpoint())
    asked = [ChatMessage("user", "u")]
    given = builder.build("", messages=asked, template_values={"enable_thinking": True})
    assert (given.ids, given.reasoning) == (builder.build("", messages=asked).ids, None)


@pytest.mark.parametrize("is_special", [True, False])
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("[THINK]", "[/THINK]"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
        ("<seed:think>", "</seed:think>"),
        ("◁think▷", "◁/think▷"),
    ],
)
def test_the_tags_are_those_of_the_template_or_the_tokens(begin: str, end: str, *, is_special: bool) -> None:
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    for source in (template, template + f"{{% if think %}}{begin}\n{{% endif %}}"):
        checkpoint = shaped_checkpoint(source, has_tokens=False)
        tags = [AddedToken(tag, normalized=False, special=is_special) for tag in (begin, end)]
        checkpoint.tokenizer.add_tokens(tags, special_tokens=is_special)
        builder = PromptBuilder(checkpoint)
        assert builder.build("", [], f"a {begin} b").reasoning is POSSIBLE
        opened = builder.build("", [], f"a {begin} b", template_values={"think": True})
        assert opened.reasoning is (POSSIBLE if source == template else OPENED)
        (number,) = checkpoint.tokenizer(begin, add_special_tokens=False).input_ids
        assert opened.ids.count(number) == (source != template), "a user's text has no such token"
        written = checkpoint.tokenizer(f"{begin}\nhm\n{end}\n\nYes.", add_special_tokens=False).input_ids
        text = AnswerText(Vocabulary(checkpoint.tokenizer), (), None, POSSIBLE)
        parts = [*map(text.step, written), text.finish()]
        assert "".join(part.reasoning for part in parts) == "hm"
        assert "".join(part.text for part in parts) == "Yes."
