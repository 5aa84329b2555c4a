"""LogitChanges: penalties by transformers, and by OpenAI's formula; a step costs what one token costs."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from models.drawing.logit_changes import LogitChanges
from models.drawing.sampler import Draw, sample
from models.interface.generation import Sampling
from tests.unit.models.processor_time import least_s

VOCABULARY = 300


@pytest.fixture
def chance() -> random.Random:
    return random.Random(5)


def logits(rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(rows)) * 3).to(dtype)


def drawn(row: torch.Tensor, draw: Draw) -> int:
    (token,) = sample(row.unsqueeze(0).clone(), [draw]).read()
    return token.token


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("penalty", [1.1, 1.7, 0.6])
def test_a_repetition_penalty_is_that_of_transformers(
    chance: random.Random, penalty: float, dtype: torch.dtype
) -> None:
    sampling = Sampling(temperature=0, repetition_penalty=penalty)
    processor = RepetitionPenaltyLogitsProcessor(penalty)
    for row in logits(200, dtype):
        prompt, answer = chance.choices(range(VOCABULARY), k=40), chance.choices(range(VOCABULARY), k=9)
        expected = processor(torch.tensor([prompt + answer]), row.unsqueeze(0).clone()).argmax().item()
        assert drawn(row, Draw(sampling, 9, LogitChanges.of(sampling, prompt, answer))) == expected


def test_the_other_penalties_and_biases_are_those_of_openai_s_formula(chance: random.Random) -> None:
    """mu[j] -> mu[j] - c[j] * frequency - (c[j] > 0) * presence, of OpenAI's documentation, with the bias added."""
    sampling = Sampling(
        temperature=0, presence_penalty=0.7, frequency_penalty=0.4, logit_bias=((3, 1.5), (8, -2.0), (10**9, 9.0))
    )
    for row in logits(200):
        answer = chance.choices(range(12), k=chance.randrange(30))
        expected = row.double()
        for token in range(VOCABULARY):
            count = answer.count(token)
            expected[token] += {3: 1.5, 8: -2.0}.get(token, 0.0) - count * 0.4 - (count > 0) * 0.7
        changes = LogitChanges.of(sampling, chance.choices(range(VOCABULARY), k=20), answer)
        assert drawn(row, Draw(sampling, len(answer), changes)) == expected.argmax().item()


def test_those_that_are_kept_are_those_that_are_made_anew(chance: random.Random) -> None:
    sampling = Sampling(
        presence_penalty=0.7, frequency_penalty=-0.4, repetition_penalty=1.3, logit_bias=((3, 1.5), (400, 2.0))
    )
    prompt = chance.choices(range(VOCABULARY), k=50)
    kept = LogitChanges.of(sampling, prompt)
    assert kept is not None
    answer: list[int] = []
    for _ in range(300):
        draft = chance.choices(range(VOCABULARY), k=3)
        _assert_same(kept.after(draft), LogitChanges.of(sampling, prompt, [*answer, *draft]))
        _assert_same(kept, LogitChanges.of(sampling, prompt, answer))
        answer.append(chance.randrange(500))
        kept.append(answer[-1])


def _assert_same(one: LogitChanges, other: LogitChanges | None) -> None:
    assert other is not None
    for mine, yours in ((one.tokens, other.tokens), (one.factors, other.factors), (one.addends, other.addends)):
        np.testing.assert_array_equal(mine, yours)


def test_there_are_none_without_penalties_and_biases() -> None:
    assert LogitChanges.of(Sampling(top_k=5, temperature=0.3), [1, 2, 3], [4]) is None


def test_a_token_costs_as_much_behind_a_long_prompt_as_behind_a_short_one() -> None:
    sampling = Sampling(repetition_penalty=1.1, frequency_penalty=0.1)

    def seconds(length: int) -> float:
        changes = LogitChanges.of(sampling, range(length))
        assert changes is not None
        return least_s(lambda: [changes.append(token % 50) for token in range(2000)])

    assert seconds(100_000) < 20 * seconds(100)  # anew: 1,000 times
