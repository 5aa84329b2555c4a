from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.private.mask import Occurrences

PIECES = ("Al", "Also", "Anna", "Anna Schmidt", "12", "123", " ", ", ", "é", "7", "<K_1>", "Schmidt", "A", "nn")
VALUES = [one for one in PIECES if one.strip(" ,")]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
values = st.lists(st.sampled_from(VALUES) | st.text("An 1", min_size=1, max_size=4), min_size=1, max_size=8)


def words(text: str, known: list[str], kept: list[tuple[int, int]] | None = None) -> list[str]:
    return [text[begin:end] for begin, end in Occurrences(known).in_text(text, kept or [])]


@pytest.mark.parametrize(
    ("text", "known", "found"),
    [
        ("I am Anna Schmidt.", ["Anna", "Anna Schmidt"], ["Anna Schmidt"]),
        ("Also Al, and Al", ["Al"], ["Al", "Al"]),
        ("123 and 1234", ["123"], ["123"]),
        ("xAnna Annas Anna", ["Anna"], ["Anna", "Anna"]),
        ("12 Main Street", ["12", "12 Main Street"], ["12 Main Street"]),
        ("nothing", ["Anna"], []),
        ("", ["Anna"], []),
        ("Anna", [], []),
        ("(-]^\\b", ["-]^\\b"], ["-]^\\b"]),
    ],
)
def test_occurrences_are_whole_words_and_the_longest_ones(text: str, known: list[str], found: list[str]) -> None:
    assert words(text, known) == found


def test_occurrences_within_what_is_kept_are_skipped() -> None:
    assert list(Occurrences(["K_1", "1"]).in_text("<K_1> 1", [(0, 5)])) == [(6, 7)]


@given(text=texts, known=values)
def test_every_value_is_in_every_place_where_it_is_a_whole_word(text: str, known: list[str]) -> None:
    assert {*Occurrences(known).all_in(text)} == {
        (begin, begin + len(one))
        for one in known
        for begin in range(len(text))
        if text.startswith(one, begin) and _is_whole(text, begin, begin + len(one))
    }


@given(text=texts, known=values)
def test_occurrences_are_values_from_left_to_right_without_overlaps(text: str, known: list[str]) -> None:
    at = 0
    for begin, end in Occurrences(known).in_text(text):
        assert begin >= at
        assert text[begin:end] in known
        at = end


def _is_whole(text: str, begin: int, end: int) -> bool:
    before, behind, value = text[:begin][-1:], text[end:][:1], text[begin:end]
    if before.isascii() and before.isalnum():
        return False
    if value[-1].isdigit():
        return not (behind.isascii() and behind.isdigit())
    return len(value) >= 4 or not (behind.isascii() and behind.isalnum())
