"""Ranges of numbers and sizes as llguidance reads them: what is written keeps to the schema, and may be all of it."""

from __future__ import annotations

import math
from decimal import ROUND_DOWN, Decimal
from itertools import product
from typing import Any, TypeGuard

LARGEST = 10**18
LONGEST = 1 << 20
"""Characters of a text, and elements of a list or an object, that a schema may still count."""
_MOST_PLACES_OF_A_NUMBER = 4
_BOUNDS = {"minimum": -1, "maximum": 1, "exclusiveMinimum": -1, "exclusiveMaximum": 1}
_SIZES = frozenset(
    f"{bound}{what}" for bound in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")
)


def narrow(made: dict[str, Any]) -> None:
    """Numbers that llguidance does not read, by others that allow nothing more."""
    for name, sign in _BOUNDS.items():
        if _is_number(made.get(name)) and made[name] * sign > LARGEST:
            made[name] = LARGEST * sign
    _keep_out(made)
    for name in _SIZES & made.keys():
        if isinstance(size := made[name], float) and size.is_integer():
            made[name] = int(size)
        if name.startswith("max") and _is_number(made[name]):
            made[name] = min(made[name], LONGEST)


def _keep_out(made: dict[str, Any]) -> None:
    """Of whole numbers that llguidance lets in as excluded bounds: 0 in (0, 0.5]."""
    least, most = made.get("exclusiveMinimum"), made.get("maximum", made.get("exclusiveMaximum"))
    if _is_usual(least) and _is_usual(most) and float(least).is_integer() and least < most < least + 1:
        above = least + 10.0 ** (math.floor(math.log10(most - least)) - 6)
        made["minimum"] = max(above, made["minimum"]) if _is_number(made.get("minimum")) else above


def split(made: dict[str, Any]) -> bool:
    """Whether the range has become choices.

    llguidance lets in no number that is the beginning of a bound, as 0.2 of 0.25. It does as a bound of its own.
    """
    if made.get("type") != "number":
        return False
    bounds: list[list[dict[str, float]]] = []
    for name, sign in (("minimum", -1), ("maximum", 1)):
        excluded = f"exclusive{name.capitalize()}"
        given = {one: made[one] for one in (name, excluded) if one in made}
        if not all(map(_is_usual, given.values())):
            return False
        bound = min(given.values(), key=lambda one: one * sign, default=0)
        bounds.append([given, *({name: one} for one in _beginnings(bound * sign, sign))])
    choices = [{**least, **most} for least, most in product(*bounds)]
    if len(choices) == 1 or not isinstance(made.get("allOf", []), list):
        return False
    for name in _BOUNDS:
        made.pop(name, None)
    if "anyOf" in made:
        made["allOf"] = [*made.get("allOf", ()), {"anyOf": choices}]
    else:
        made["anyOf"] = choices
    return True


def _beginnings(bound: float, sign: int) -> list[float]:
    digits = Decimal(str(bound))
    places = -int(digits.as_tuple().exponent)
    if bound <= 0 or not 2 <= places <= _MOST_PLACES_OF_A_NUMBER:
        return []
    cut = {digits.quantize(Decimal(1).scaleb(-place), ROUND_DOWN) for place in range(1, places)}
    return [float(one) * sign for one in sorted(cut)]


def _is_number(bound: Any) -> TypeGuard[float]:
    return isinstance(bound, int | float) and not isinstance(bound, bool)


def _is_usual(bound: Any) -> TypeGuard[float]:
    return _is_number(bound) and abs(bound) <= LARGEST
