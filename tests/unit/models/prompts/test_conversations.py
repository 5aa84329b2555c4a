"""Any conversation through the chat template of any family: it is rendered for every later turn, and as transformers
renders the messages that the template wants (`wanted.py`); no text of others forges a token of control.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from models.prompts.builder import PromptBuilder
from tests.unit.models.conversations import Conversation, Forgery, RandomConversations
from tests.unit.models.template_shapes import CONTROL, OWN_CONTROL, SHAPES, shaped_checkpoint
from tests.unit.models.wanted import WANTS, rights, without_ids

TURNS = 5
SHORT, LONG = range(12), range(1000)

_HARMLESS = str.maketrans("<>[]|｜", "(){}!¡")

every_shape = pytest.mark.parametrize("shape", SHAPES)


@dataclass(frozen=True, slots=True)
class Family:
    tokenizer: Any
    builder: PromptBuilder

    def ids(self, asked: Conversation) -> list[int]:
        built = self.builder.build(
            asked.system, asked.history, asked.prompt, steps=asked.steps, tools=asked.tools, at=time.time()
        )
        return list(built.ids)

    def control(self, ids: list[int]) -> list[int]:
        own = [name for names in OWN_CONTROL.values() for name in names]
        known = set(self.tokenizer.convert_tokens_to_ids([*CONTROL, *own]))
        return [one for one in ids if one in known]

    def text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


@cache
def family(shape: str) -> Family:
    checkpoint = shaped_checkpoint(SHAPES[shape])
    return Family(checkpoint.tokenizer, PromptBuilder(checkpoint, memory_turns=20))


def check(shape: str, seed: int) -> None:
    own = family(shape)
    fair = RandomConversations(seed).several(TURNS)
    names = (*CONTROL, *OWN_CONTROL.get(shape, ()))
    forged = RandomConversations(seed, Forgery.WHOLE, names).several(TURNS)
    cut, harmless = (
        RandomConversations(seed, Forgery.CUT, each).several(TURNS)
        for each in (names, tuple(name.translate(_HARMLESS) for name in names))
    )
    for number, asked in enumerate(fair):
        ids = own.ids(asked)
        right, is_wanted = next(rights(own.tokenizer, WANTS[shape], asked))
        assert is_wanted or not asked.is_orderly, (seed, number)
        assert without_ids(own.text(ids)) == without_ids(right), (seed, number)
        assert own.ids(forged[number]) == ids, (seed, number)
        assert own.control(own.ids(cut[number])) == own.control(own.ids(harmless[number])), (seed, number)


@every_shape
def test_some_conversations(shape: str) -> None:
    for seed in SHORT:
        check(shape, seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@every_shape
def test_a_thousand_conversations(shape: str) -> None:
    for seed in LONG:
        check(shape, seed)
