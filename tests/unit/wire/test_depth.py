"""Depth and digits, found by arithmetic on arrays: the same as a reader of characters finds."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from app.wire.depth import _depths, _may_have_long_number, _steps, check_digits, top_level
from app.wire.limits import MAX_DIGITS
from app.wire.malformed import MalformedError

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


def value(chance: random.Random, depth: int = 1) -> Any:
    kind = chance.random()
    if depth > 6 or kind < 0.3:
        return chance.choice(LEAVES)
    if kind < 0.6:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(("a", "b[", 'c"')): value(chance, depth + 1) for _ in range(chance.randrange(4))}


def test_any_json_has_its_depth_and_its_top_level() -> None:
    chance = random.Random(1)
    for _ in range(1000):
        given = {"k": value(chance), "request_id": "r", "z": value(chance)}
        text = json.dumps(given)
        assert int(_depths(_steps(text.encode())).max()) == deepest(text)
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
