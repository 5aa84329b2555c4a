"""Whose consent a file of users states."""

from __future__ import annotations

import io

import pytest

from app.commands.export import listed_users
from app.commands.terminal import WrongUseError


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("nina\nacme/bob\n\n", {"nina", "acme/bob"}),
        ("nina\r\nacme/bob", {"nina", "acme/bob"}),
        ("\ufeffnina\n", {"nina"}),
        ("nina \n\u00a0bob\n", {"nina ", "\u00a0bob"}),
        ("bob\rnina\n", {"bob\rnina"}),
        ("bob\u2028nina\n", {"bob\u2028nina"}),
        ("", set()),
    ],
)
def test_each_line_is_one_id_as_it_stands(text: str, users: set[str]) -> None:
    assert listed_users(io.BytesIO(text.encode())) == users


def test_a_file_that_is_not_utf8_is_wrong_use() -> None:
    with pytest.raises(WrongUseError, match="UTF-8"):
        listed_users(io.BytesIO(b"nina\xff\n"))
