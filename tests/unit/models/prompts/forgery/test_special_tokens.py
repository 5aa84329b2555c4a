"""No text becomes a special token, however it is nested, and in linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.prompts.forgery.special_tokens import SpecialTokens
from tests.unit.models.processor_time import least_s

NAMES = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<pad>", "[INST]")
TOKENS = SpecialTokens(NAMES)
PIECES = st.sampled_from(
    [*NAMES, *(part for name in NAMES for part in (name[:3], name[3:])), "a", "<", "|", ">", "ä😀"]
)


def by_passes(text: str) -> str:
    """The plain way, which reads the whole text again as long as there is anything to take out."""
    names = re.compile("|".join(map(re.escape, sorted(NAMES, key=len, reverse=True))))
    while names.search(text):
        text = names.sub("", text)
    return text


@given(st.lists(PIECES, max_size=40).map("".join))
def test_nothing_special_is_left_and_nothing_else_is_lost(text: str) -> None:
    plain = TOKENS.removed_from(text)
    assert not any(name in plain for name in NAMES)
    assert plain == by_passes(text)


@given(st.text())
def test_other_text_stays_as_it_is(text: str) -> None:
    assert TOKENS.removed_from(text) == by_passes(text)


@pytest.mark.parametrize("depth", [1, 10, 1000])
def test_nested_names_are_taken_out(depth: int) -> None:
    assert TOKENS.removed_from("a" + "<|im_" * depth + "end|>" * depth + "b") == "ab"


def test_time_is_linear_in_the_depth() -> None:
    def seconds(depth: int) -> float:
        text = "<|im_" * depth + "end|>" * depth
        return least_s(lambda: TOKENS.removed_from(text))

    assert seconds(16_000) < 40 * seconds(2_000)  # quadratic: 64 times


def test_a_model_without_special_tokens_keeps_all() -> None:
    assert SpecialTokens(()).removed_from("<s>a") == "<s>a"
