"""names_pattern finds what the alternatives of all names find, and one more name does not cost each character more."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.prompts.forgery.names_pattern import DEEPEST, names_pattern
from tests.unit.models.processor_time import least_s

LETTERS = st.text(alphabet="<ab|.\n", max_size=6)


def longest_first(names: list[str]) -> str:
    return "|".join(map(re.escape, sorted({name for name in names if name}, key=len, reverse=True)))


@given(st.lists(LETTERS.filter(bool), min_size=1, max_size=12), st.lists(LETTERS, max_size=30).map("".join))
def test_it_finds_what_alternatives_find(names: list[str], text: str) -> None:
    assert re.findall(names_pattern(names), text) == re.findall(longest_first(names), text)


@pytest.mark.parametrize("names", [[], [""]])
def test_no_name_is_nowhere(names: list[str]) -> None:
    assert re.search(names_pattern(names), "a text\n") is None


@pytest.mark.parametrize("longest", [DEEPEST - 1, DEEPEST + 2, 300])
def test_runs_of_a_letter_of_every_length(longest: int) -> None:
    names = [" " * length for length in range(1, longest + 1)]
    found = re.findall(names_pattern(names), f"a{' ' * (longest + 3)}b c")
    assert [len(name) for name in found] == [longest, 3, 1]


def test_a_deep_run_does_not_slow_down_the_other_names() -> None:
    pattern = names_pattern([*(" " * length for length in range(1, 2 * DEEPEST)), "<a>", "<b>", "<abc>"])
    assert pattern.count("<") == 1, "the others are a tree"
    assert re.findall(pattern, "<abc><a> <b><c>") == ["<abc>", "<a>", " ", "<b>"]


def test_thousands_of_names_that_begin_alike_are_found_as_fast_as_ten() -> None:
    text = "<" * 10_000 + "<unused12>" * 100

    def seconds(count: int) -> float:
        pattern = re.compile(names_pattern(f"<unused{number}>" for number in range(count)))
        return least_s(lambda: pattern.findall(text))

    assert seconds(6_000) < 20 * seconds(10)  # as alternatives: 600 times
