"""What a record holds does not reach the terminal as a command."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from app.process.printable import printable, printable_json

HOSTILE = "\x1b[2J\x07\x85\x9b31m\u202eevil\u2066\u200f\u2028\U000e0041"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_printable_json_has_the_same_meaning_and_no_control_characters(text: str) -> None:
    shown = printable_json(json.dumps({"a": text}, ensure_ascii=False).encode())
    assert json.loads(shown) == {"a": text}
    assert shown.isprintable()


def test_marks_of_terminals_and_of_direction_are_shown_as_such() -> None:
    assert printable_json(json.dumps(HOSTILE, ensure_ascii=False).encode()).isprintable()
    assert "\\u202e" in printable_json('"\u202e"'.encode())
    assert printable(HOSTILE).isprintable()
    assert printable_json('"Grüße, 日本"'.encode()) == '"Grüße, 日本"'
