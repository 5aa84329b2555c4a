"""Placeholders: equal for equal values of one user, and read back also where a model has changed them."""

from __future__ import annotations

import json
import random
import re
import string
import sys
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.private.folding import folded
from app.private.mask import NO_MASK, Mask
from app.private.value import PrivateValue

VALUES = (
    PrivateValue("PERSON", "Anna Schmidt"),
    PrivateValue("EMAIL_ADDRESS", "anna@example.com"),
    PrivateValue("PHONE_NUMBER", "+49 170 1234567"),
    PrivateValue("PERSON", "Al"),
)
MASK = Mask(b"secret", "user", VALUES)


def placeholder(value: str) -> str:
    return MASK.hide(value)


def test_no_value_is_left_in_a_hidden_text() -> None:
    text = "Anna Schmidt (anna@example.com, +49 170 1234567) and Al. Also: Anna Schmidts."
    hidden = MASK.hide(text)
    assert not [one for one in VALUES if one.value in hidden.replace("Also", "")]
    assert "Also" in hidden
    assert MASK.put_back(hidden) == text


@given(st.lists(st.sampled_from([*(one.value for one in VALUES), "<", ">", "PERSON", "_", " ", "also", "\\", "&lt;"])))
def test_hide_and_put_back_are_inverse(parts: list[str]) -> None:
    text = "".join(parts)
    assert MASK.put_back(MASK.hide(text)) == text


def test_placeholders_depend_on_secret_user_and_value_alone() -> None:
    value = VALUES[0]
    others = [Mask(b"secret", "user", VALUES[:1]), Mask(b"other", "user", [value]), Mask(b"secret", "else", [value])]
    found = [mask.hide(value.value) for mask in (MASK, *others)]
    assert found[0] == found[1]
    assert len({*found}) == 3


@pytest.mark.parametrize(
    "change",
    [
        str,
        str.lower,
        lambda text: text.strip("<>"),
        lambda text: text.replace("_", "\\_"),
        lambda text: text.replace("_", " "),
        lambda text: text.replace("<", "&lt;").replace(">", "&gt;"),
    ],
)
def test_a_placeholder_that_a_model_has_changed_is_read(change: object) -> None:
    assert callable(change)
    for one in VALUES:
        assert MASK.put_back(f"to {change(placeholder(one.value))}, please") == f"to {one.value}, please"


def test_letters_that_a_model_appends_follow_the_value() -> None:
    assert MASK.put_back(placeholder("Anna Schmidt") + "s") == "Anna Schmidts"


def test_a_placeholder_of_other_values_is_text() -> None:
    text = "<PERSON_7KQ2M9XA> and <PERSON_AAAAAAAA>"
    assert MASK.put_back(text) == text
    assert MASK.hide(text) == text


def test_values_in_json_are_hidden_and_escaped() -> None:
    quoted = Mask(b"s", "u", [PrivateValue("PERSON", 'Anna "A" Schmidt')])
    text = json.dumps({"to": 'Anna "A" Schmidt', "n": 1})
    hidden = quoted.hide_json(text)
    assert "Anna" not in hidden
    assert json.loads(quoted.put_back_json(hidden)) == json.loads(text)
    assert NO_MASK.hide_json(text) == text


def test_a_text_can_be_cut_anywhere_but_within_a_placeholder() -> None:
    text = f"to {placeholder('Al')}!"
    scan = MASK.scan(text)
    inside = range(4, len(text) - 1)
    assert [at for at in range(len(text) + 1) if not scan.allows_cut(at)] == [*inside]
    assert MASK.scan("to <PERS").open_from == 3
    assert MASK.scan("a < b").open_from == 5


FOLDED: dict[str, list[str]] = {letter: [] for letter in string.ascii_lowercase}
for _odd in map(chr, range(128, sys.maxunicode + 1)):
    for _letter in {_odd.casefold(), _odd.lower()} & FOLDED.keys():
        FOLDED[_letter].append(_odd)


def test_letters_whose_case_folding_is_a_letter_of_a_placeholder_are_text() -> None:
    """Python's own case folding is the oracle: U+212A is K, U+017F is S. A model writes whatever its user wants."""
    assert "\u212a" in FOLDED["k"]
    assert "\u017f" in FOLDED["s"]
    mask = Mask(b"secret", "user", [PrivateValue("PERSON", f"Anna {number}") for number in range(40)])
    for value in mask.values:
        own = mask.hide(value.value)
        for at, letter in enumerate(own):
            for odd in FOLDED.get(letter.lower(), ()):
                text = f"to {own[:at]}{odd}{own[at + 1 :]}, please"
                assert mask.put_back(text) == text
                assert not mask.scan(text).complete


@given(
    st.lists(
        st.sampled_from([*map(MASK.hide, ("Al", "Anna Schmidt")), "<PERSON_", "_", " ", "\\", "&lt;", ">"])
        | st.text(st.characters(), max_size=3)
        | st.sampled_from([odd for odds in FOLDED.values() for odd in odds])
    ).map("".join)
)
def test_no_answer_makes_a_mask_fail(text: str) -> None:
    assert isinstance(MASK.put_back(text), str)
    assert isinstance(MASK.put_back_json(text), str)
    assert isinstance(MASK.hide_json(text), str)
    assert MASK.scan(text).open_from <= len(text)


def test_numbers_and_names_in_json_are_hidden() -> None:
    mask = Mask(b"s", "u", [PrivateValue("CREDIT_CARD", "4111111111111111"), PrivateValue("EMAIL_ADDRESS", "a@b.co")])
    text = '{"card": 4111111111111111, "a@b.co" : [1.50, "a@b.co"], "\\u0061@b.co": true}'
    hidden = mask.hide_json(text)
    assert "4111111111111111" not in hidden
    assert "@b.co" not in hidden
    assert " : [1.50, " in hidden
    card, mail = mask.hide("4111111111111111"), mask.hide("a@b.co")
    assert json.loads(hidden) == {"card": card, mail: True}


def test_json_of_any_depth_is_hidden() -> None:
    text = "[" * 100_000 + '"Anna Schmidt"' + "]" * 100_000
    assert "Anna" not in MASK.hide_json(text)
    assert "Anna" not in MASK.hide_json("[" * 100_000 + '"Anna Schmidt"')


def test_half_a_character_that_is_escaped_stays_escaped() -> None:
    assert "\\ud83d" in MASK.hide_json('{"a": "\\ud83d Anna Schmidt"}')


def test_the_values_in_texts_are_known_also_within_others() -> None:
    mask = Mask(b"s", "u", [PrivateValue("PERSON", one) for one in ("Anna Schmidt", "Schmidt", "Bob")])
    assert mask.values_in(["to Anna", "Anna Schmidt"]) == {"Anna Schmidt", "Schmidt"}


NAME, IBAN, MAIL = "Jörg Straße", "DE89370400440532013000", "nina@example.com"
FORMED = (PrivateValue("PERSON", NAME), PrivateValue("IBAN_CODE", IBAN), PrivateValue("EMAIL_ADDRESS", MAIL))
PLACED = re.compile(r"<[A-Z_]+_[0-9A-Z]{8}>")
WIDE = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
FORMS = (
    *(change(one) for one in (NAME, IBAN, MAIL) for change in (str.upper, str.lower, str.title, str.swapcase)),
    *(unicodedata.normalize(form, NAME) for form in ("NFC", "NFD", "NFKC", "NFKD")),
    *(one.translate(WIDE) for one in (IBAN, MAIL)),
    "JÖRG STRASSE",
    "jörg strasse",
    "JÖRG STRAẞE",
    "Jörg\u00a0Straße",
    "Jörg Stra\u00adße",
    "nına@example.com",
    "NİNA@EXAMPLE.COM",
)


@pytest.mark.parametrize("written", FORMS)
def test_a_value_in_another_form_is_hidden_and_comes_back_as_it_was_written(written: str) -> None:
    mask = Mask(b"k", "u", FORMED)
    text = f"1. {NAME}, {IBAN}, {MAIL}; {written}! {written}? <b>"
    hidden = mask.hide(text)
    assert folded(written).text not in folded(hidden).text
    first, second = PLACED.findall(hidden)[3:]
    assert first == second
    assert mask.put_back(hidden) == text
    assert mask.hide(hidden) == hidden
    assert Mask(b"k", "u", FORMED).hide(text) == hidden
    (base,) = mask.values_in([f"it is {written}."])
    assert folded(base).text == folded(written).text


@pytest.mark.parametrize("change", [str.upper, str.lower, str.title])
def test_a_mask_that_has_not_read_the_text_knows_the_usual_forms(change: Callable[[str], str]) -> None:
    text = f"{change(NAME)} {change(MAIL)}"
    assert Mask(b"k", "u", FORMED).put_back(Mask(b"k", "u", FORMED).hide(text)) == text


def test_a_part_of_a_letter_is_no_value() -> None:
    mask = Mask(b"k", "u", [PrivateValue("PERSON", "Jose"), PrivateValue("PERSON", "Mas")])
    assert mask.hide("José maß") == "José maß"


def test_any_text_comes_back() -> None:
    rng = random.Random(7)
    letters = [
        "Jörg",
        " ",
        "STRASSE",
        "straße",
        "ﬁ",
        "I\u0307",
        "ı",
        "\u200b",
        "é",
        "e\u0301",
        "Ｎ",
        "ina@Example.com",
        "9",
    ]
    for _ in range(300):
        mask = Mask(b"k", "u", FORMED)
        text = "".join(rng.choice(letters) for _ in range(12))
        assert mask.put_back(mask.hide(text)) == text
