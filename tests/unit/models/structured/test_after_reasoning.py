"""A constraint that begins behind a reasoning allows all but ends before it, and then what it allows by itself."""

from __future__ import annotations

import json
import random

from models.interface.generation import ConstraintKind, OutputConstraint
from models.structured import Matcher
from models.structured.after_reasoning import after_reasoning
from models.text.reasoning import Reasoning, ReasoningTokens
from tests.unit.models.structured.walks import constraints, eos, matcher_of, tokenizer, tokens_of, walk

CHOICES = OutputConstraint(ConstraintKind.CHOICES, json.dumps(["yes", "no"]))
TAGS = ReasoningTokens(7, 9)
"""Any two tokens will do."""
THOUGHT = [11, 12, TAGS.begin, 13]


def matcher() -> Matcher:
    return matcher_of(constraints(), CHOICES)


def reasoning(begins: Reasoning) -> Matcher:
    return after_reasoning(matcher(), begins, TAGS, frozenset({eos()}))


def ids(text: str) -> list[int]:
    found: list[int] = tokenizer()(text, add_special_tokens=False)["input_ids"]
    return found


def test_inside_the_reasoning_everything_may_come_but_an_end() -> None:
    bound = reasoning(Reasoning.OPENED)
    assert {*range(len(tokenizer()))} - {*tokens_of(bound.allowed())} == {eos()}
    for token in THOUGHT:
        bound.advance(token)
        assert not bound.complete
    bound.advance(TAGS.end)
    assert bound.allowed() == matcher().allowed()
    assert walk(bound, 1) in {"yes", "no"}


def test_the_first_token_decides_whether_there_is_a_reasoning() -> None:
    bound = reasoning(Reasoning.POSSIBLE)
    assert {*tokens_of(bound.allowed())} == {*tokens_of(matcher().allowed()), TAGS.begin}
    without = bound.copy()
    for token in ids("yes"):
        without.advance(token)
    assert without.complete
    bound.advance(TAGS.begin)
    assert eos() not in tokens_of(bound.allowed())


def test_a_model_without_reasoning_or_without_tags_has_the_plain_constraint() -> None:
    plain = matcher()
    assert after_reasoning(plain, None, TAGS, frozenset()) is plain
    assert after_reasoning(plain, Reasoning.OPENED, None, frozenset()) is plain


def test_looking_ahead_is_what_one_token_after_the_other_gives() -> None:
    chance = random.Random(1)
    wholes = [[*THOUGHT, TAGS.end, *ids("yes")], [TAGS.begin, *THOUGHT, TAGS.end, *ids("no")], ids("yes"), [11, eos()]]
    for begins in (Reasoning.OPENED, Reasoning.POSSIBLE):
        for whole in wholes:
            for _ in range(20):
                before = chance.randrange(len(whole) + 1)
                draft = whole[before:] + chance.sample(range(20, 60), 2)
                state = reasoning(begins)
                fits = state.allowed_count(whole[:before]) == before
                if not fits:
                    continue
                for token in whole[:before]:
                    state.advance(token)
                masks, step = state.ahead(draft), state.copy()
                assert len(masks) == 1 + state.allowed_count(draft)
                for mask, token in zip(masks, draft, strict=False):
                    assert mask == step.allowed()
                    assert (token in tokens_of(mask)) == (step.allowed_count([token]) == 1)
                    if not step.allowed_count([token]):
                        break
                    step.advance(token)
