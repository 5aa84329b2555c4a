"""Why a foreign record gives no request, in the words of those who write it: they know their own fields' names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import UNSET

from app.policy.foreign import IntakeRules
from app.wire.codec import quoted
from app.wire.error import ErrorCode, WireError

_OF_TYPE = re.compile(r"(?P<why>.*) - at `\$\.(?P<name>\w+)(?P<rest>.*)`", re.DOTALL)
"""As msgspec refuses a value: "Expected `str`, got `array` - at `$.prompt`"."""
_OF_VALUE = re.compile(r"(?P<name>\w+)(?P<rest>[.\w]*): (?P<why>.*)", re.DOTALL)
"""As `validate_request` does: "prompt: is empty"."""


class Lack(NamedTuple):
    """A field that a request needs, in the words of its sender, and what the record has for it: `UNSET` is nothing."""

    theirs: str
    value: Any


def missing(lacks: Sequence[Lack], fields: Sequence[str]) -> WireError:
    """The record has nothing usable for these; `fields` are those that it has."""
    absent = [one.theirs for one in lacks if one.value is UNSET]
    useless = [f"{theirs} is {_uselessness(value)}" for theirs, value in lacks if value is not UNSET]
    if absent:
        useless.append(f"the record has no {' and no '.join(absent)}; it has {quoted(fields)}")
    return WireError(ErrorCode.INVALID_REQUEST, "; ".join(useless))


def _uselessness(value: Any) -> str:
    return "null" if value is None else "not UTF-8" if value else "empty"


def several(rules: IntakeRules, names: Sequence[str]) -> WireError:
    """The record has more than one text for the model."""
    have = " and ".join(theirs(rules, name) for name in names)
    return WireError(ErrorCode.INVALID_REQUEST, f"the record has {have}: a request has one of them")


def translated(rules: IntakeRules, error: WireError) -> WireError:
    """A refusal of the request made of the record."""
    named = _OF_TYPE.fullmatch(error.message) or _OF_VALUE.fullmatch(error.message)
    if named is None:
        return error
    name, rest, why = named["name"], named["rest"], named["why"]
    if name not in rules.fields and name in rules.constants:
        what = f"the intake's constant {name}{rest}"
    elif name in rules.fields or name in rules.templates or name == "user_id":
        what = theirs(rules, name, rest)
    else:
        return error
    return WireError(error.code, f"{what}: {why[:1].lower()}{why[1:]}")


def theirs(rules: IntakeRules, name: str, rest: str = "") -> str:
    """How to name a field of requests to those who write the records."""
    if name in rules.templates:
        return f"`{rules.templates[name]}` ({name})"
    return f"`{rules.fields[name]}{rest}` ({name})" if name in rules.fields else f"key ({name})"
