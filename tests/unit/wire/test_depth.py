"""The nesting of JSON texts, against the parser that would recurse into them, and the length of their numbers."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.wire import json_arrays
from app.wire.json_codec import (
    MAX_DEPTH,
    MAX_DIGITS,
    MalformedError,
    _may_have_long_number,
    check_depth,
    check_digits,
    top_level,
)

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


LEAVES = (1, "a", "[{", "\\", '"', '\\"[', None, "1" * 400, "x\\\\", 'ä"]')


def deepest(text: str) -> int:
    depth = most = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            in_string = True
        else:
            depth += (character in "[{") - (character in "]}")
            most = max(most, depth)
    return most


def any_value(chance: random.Random, depth: int = 1) -> Any:
    kind = chance.random()
    if depth > 6 or kind < 0.3:
        return chance.choice(LEAVES)
    if kind < 0.6:
        return [any_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(("a", "b[", 'c"')): any_value(chance, depth + 1) for _ in range(chance.randrange(4))}


def test_any_json_has_its_depth_and_its_top_level() -> None:
    chance = random.Random(1)
    for _ in range(1000):
        given = {"k": any_value(chance), "request_id": "r", "z": any_value(chance)}
        text = json.dumps(given)
        assert json_arrays.deepest(text.encode()) == deepest(text)
        kept = json.loads(top_level(text.encode()))
        plain = {name: 0 if isinstance(one, dict | list) else one for name, one in given.items()}
        assert kept == plain
        check_digits(text.encode())  # only strings have long ones


@pytest.mark.parametrize("digits", [MAX_DIGITS - 1, MAX_DIGITS, MAX_DIGITS + 1, MAX_DIGITS + 2, 2 * MAX_DIGITS])
def test_a_long_number_is_found_wherever_it_stands(digits: int) -> None:
    for before in range(0, 2 * MAX_DIGITS, 7):
        for behind in (0, 1, MAX_DIGITS):
            text = b"[" * before + b"1" * digits + b"]" * behind
            if digits <= MAX_DIGITS:
                check_digits(text)
                continue
            assert _may_have_long_number(text)
            with pytest.raises(MalformedError):
                check_digits(text)
