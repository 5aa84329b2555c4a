from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.private.occurrences import occurrences

PIECES = ("Al", "Also", "Anna", "Anna Schmidt", "12", "123", " ", ", ", "é", "7", "<K_1>", "Schmidt")
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        ("I am Anna Schmidt.", ["Anna", "Anna Schmidt"], ["Anna Schmidt"]),
        ("Also Al, and Al", ["Al"], ["Al", "Al"]),
        ("123 and 1234", ["123"], ["123"]),
        ("xAnna Annas Anna", ["Anna"], ["Anna", "Anna"]),
        ("12 Main Street", ["12", "12 Main Street"], ["12 Main Street"]),
        ("nothing", ["Anna"], []),
    ],
)
def test_occurrences_are_whole_words_and_the_longest_ones(text: str, values: list[str], found: list[str]) -> None:
    assert [text[begin:end] for begin, end in occurrences(text, values)] == found


def test_occurrences_within_what_is_kept_are_skipped() -> None:
    assert list(occurrences("<K_1> 1", ["K_1", "1"], ["<K_1>"])) == [(6, 7)]


@given(text=texts, values=st.lists(st.sampled_from([one for one in PIECES if one.strip(" ,")]), min_size=1, max_size=5))
def test_occurrences_are_values_from_left_to_right_without_overlaps(text: str, values: list[str]) -> None:
    at = 0
    for begin, end in occurrences(text, values):
        assert begin >= at
        assert text[begin:end] in values
        at = end
