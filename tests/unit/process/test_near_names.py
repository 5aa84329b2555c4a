from __future__ import annotations

import pytest

from app.process.near_names import nearest, with_hints
from app.wire.request import Request

KNOWN = Request.__struct_encode_fields__


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_toks", "max_tokens"), ("maxTokens", "max_tokens"), ("temprature", "temperature"), ("promt", "prompt"),
        ("converstion_id", "conversation_id"), ("weather", None), ("", None), ("x" * 10_000, None),
    ],
)  # fmt: skip
def test_the_known_name_that_is_most_like_it_is_meant(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == meant


def test_only_the_first_of_many_names_are_compared() -> None:
    names = with_hints(["max_toks", "weather", *["max_toks"] * 100], KNOWN)
    assert names[:2] == ["max_toks (did you mean max_tokens?)", "weather"]
    assert names[-1] == "max_toks"
