"""Patterns in llguidance's dialect hold where the patterns of schemas do: the oracle is Python's `re`."""

from __future__ import annotations

import random
import re

import pytest

from models.interface.generation import ConstraintKind, OutputConstraint
from models.structured import ConstraintCompiler, ConstraintError
from models.structured.patterns import looks_around, patterns
from tests.unit.models.structured.test_schema import is_allowed
from tests.unit.models.tools.test_constraint import accepts

DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
LOOKING = {
    DECIMAL: ["1.5", "-0", ".5"],  # pydantic 2.11 to 2.13, for Decimal
    r"^(?=.*\d)(?=.*[a-z]).{4,8}$": ["abc1"],
    r"^(?!\s*$).+": ["x", " x"],
    r"^(?![-+]+$).*": ["", "+a"],
    r"^(?![^a-f]).*$": ["a", "fx", ""],
    r"^(?!-)[a-z0-9-]{1,63}(?<!-)$": ["a-b"],
    r"^[a-z-]+(?<=b)$": ["a-b"],
}
DIALECT = {
    r"^[[a]+$": ["[a"],
    r"^[^[\]]+$": ["ab"],
    r"^[a&&b]+$": ["a&b"],
    r"^[+--]+$": ["+,-"],
    r"^[--a]+$": ["-A"],
    r"^[~~]+$": ["~"],
    r"^{{.*}}$": ["{{x}}"],
    r"^\${[a-z]+}$": ["${a}"],
    r"^a{,3}$": ["", "aa"],
    r"\Aa\Z": ["a"],
    r"^[A-Za-z\]]{2,}$": ["a]"],
}
LETTERS = "abfo.-+/019 @[&{},]~$x"


def texts(pattern: str, count: int = 2000) -> list[str]:
    chance = random.Random(pattern)
    return ["", *("".join(chance.choices(LETTERS, k=chance.randint(0, 8))) for _ in range(count))]


@pytest.mark.filterwarnings("ignore:Possible")
@pytest.mark.parametrize("pattern", [*LOOKING, *DIALECT])
def test_the_patterns_hold_together_where_the_pattern_does(pattern: str) -> None:
    said = patterns(pattern)
    assert not any(map(looks_around, said))
    for text in [*texts(pattern), *LOOKING.get(pattern, ()), *DIALECT.get(pattern, ())]:
        holds = re.search(pattern, text) is not None
        assert all(re.search(one, text) for one in said) == holds, text


@pytest.mark.filterwarnings("ignore:Possible")
@pytest.mark.parametrize("pattern", [*LOOKING, *DIALECT])
def test_llguidance_allows_the_texts_that_the_pattern_matches(kept: ConstraintCompiler, pattern: str) -> None:
    schema = {"type": "string", "pattern": pattern}
    for text in [*texts(pattern, 40), *LOOKING.get(pattern, ()), *DIALECT.get(pattern, ())]:
        assert is_allowed(kept, schema, text) == (re.search(pattern, text) is not None), text


def test_what_looks_around_where_it_cannot_be_said_stays_as_it_is() -> None:
    for pattern in (r"^(?:(?!x).)*$", r"x(?<!y)z", r"^(?!.*--)[a-z-]+$", r"^(?!a)b|c$", r"foo(?!bar)", r"^(?![^^])\^"):
        assert patterns(pattern) == (pattern,)


def test_a_choice_with_such_a_pattern_is_left_to_the_others(kept: ConstraintCompiler) -> None:
    unsaid = {"type": "string", "pattern": r"^(?:(?!x).)*$"}
    schema = {"anyOf": [{"type": "number"}, unsaid]}
    assert is_allowed(kept, schema, 1.5)
    assert not is_allowed(kept, schema, "x")
    with pytest.raises(ConstraintError, match="look-around"):
        is_allowed(kept, {"anyOf": [unsaid]}, "a")


WHOLE = {
    r"{{x}}": ["{{x}}"],
    r"[[a]+": ["[a", "]"],
    r"a|bc": ["a", "bc", "ac"],
}


@pytest.mark.filterwarnings("ignore:Possible")
@pytest.mark.parametrize("pattern", WHOLE)
def test_a_regular_expression_of_a_response_format_is_read_alike(kept: ConstraintCompiler, pattern: str) -> None:
    for text in [*texts(pattern, 40), *WHOLE[pattern]]:
        allowed = accepts(kept, OutputConstraint(ConstraintKind.REGEX, pattern), text)
        assert allowed == (re.fullmatch(pattern, text) is not None), text
