from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milvus_lite.search.filter.tokens import TokenKind, tokenize

from app.search.milvus.store import literal, turns_where


@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_literal_means_exactly_its_value_to_milvus_lite(value: str) -> None:
    token, end = tokenize(literal(value))
    assert (token.kind, token.value, end.kind) == (TokenKind.STRING, value, TokenKind.EOF)


def test_user_alone_is_the_least_filter() -> None:
    assert turns_where("ann") == 'user_id == "ann"'


def test_all_narrowings_are_joined() -> None:
    where = turns_where("a", conversation_id='c"', role="user", since_ms=5, before_ms=9)
    assert where == (
        'user_id == "a" and conversation_id == "c\\"" and role == "user" and created_at >= 5 and created_at < 9'
    )


@pytest.mark.parametrize("name", ["since_ms", "before_ms"])
def test_time_zero_is_a_time(name: str) -> None:
    assert "created_at" in turns_where("a", **{name: 0})  # type: ignore[arg-type]
