"""The nesting of JSON texts, against the parser that would recurse into them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.wire.depth import check_depth
from app.wire.limits import MAX_DEPTH
from app.wire.malformed import MalformedError

texts = st.text(st.sampled_from('"\\[]{}a\n'), max_size=8)
values = st.recursive(
    texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=2), max_leaves=12
)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def is_refused(text: bytes) -> bool:
    try:
        check_depth(text)
    except MalformedError:
        return True
    return False


@given(values, st.integers(0, MAX_DEPTH + 2), st.booleans())
def test_a_text_is_refused_exactly_if_its_parser_would_go_too_deep(value: Any, more: int, padded: bool) -> None:
    for _ in range(more):
        value = [value]
    if padded:
        value = [value, *([[]] * MAX_DEPTH)]
    assert is_refused(json.dumps(value).encode()) == (depth_of(value) > MAX_DEPTH)


@pytest.mark.parametrize(
    "text", [b"[" * 600, b"[" * 600 + b"]" * 9000, b'{"a":' * 600, b"[]" * 40 + b"[" * 33, b'"[' + b'"' + b"[" * 33]
)
def test_a_broken_text_is_refused_too_if_its_beginning_goes_too_deep(text: bytes) -> None:
    assert is_refused(text)


def test_brackets_in_strings_do_not_count() -> None:
    assert not is_refused(json.dumps({"a": "[{" * 600, "[" * 600: '\\"[' * 600}).encode())
