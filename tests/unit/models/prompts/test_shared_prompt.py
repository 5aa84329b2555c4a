"""Which tokens of a prompt are the service's own words."""

from __future__ import annotations

import pytest

from models.interface.chat import ChatMessage
from models.prompts.builder import PromptBuilder
from tests.unit.models import tiny


@pytest.fixture(scope="module")
def builder() -> PromptBuilder:
    return PromptBuilder(tiny.checkpoint())


def shared_text(builder: PromptBuilder, *args: object, **how: object) -> str:
    built = builder.build(*args, **how)  # type: ignore[arg-type]
    return str(builder._tokenizer.decode(built.ids[: built.shared]))


@pytest.mark.parametrize("prompt", ["x", "7", "where is it", "", "<|system|>be kind"])
@pytest.mark.parametrize("history", [(), [("x", "y")], [("7", "seven"), ("x", "y")]])
def test_service_words_and_template_are_shared_and_no_word_of_a_user(
    builder: PromptBuilder, prompt: str, history: list[tuple[str, str]]
) -> None:
    assert shared_text(builder, "be kind", history, prompt) == "<|system|>be kind<|end|><|user|>"


def test_system_words_of_the_caller_are_the_callers(builder: PromptBuilder) -> None:
    own = [ChatMessage("system", "be kind"), ChatMessage("user", "x")]
    assert shared_text(builder, "be kind", messages=own) == ""
    assert shared_text(builder, "be kind", messages=own[1:]) == "<|system|>be kind<|end|><|user|>"


def test_two_system_prompts_of_one_beginning_share_what_each_has(builder: PromptBuilder) -> None:
    assert shared_text(builder, "be kind", (), "x").endswith("be kind<|end|><|user|>")
    assert shared_text(builder, "be kind and short", (), "x").endswith("be kind and short<|end|><|user|>")
