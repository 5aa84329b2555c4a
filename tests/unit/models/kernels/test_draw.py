"""The kernel draws the token that torch's operations draw (sampler.py), whatever the scores and the filters."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch
from numba import njit

from models.drawing.logit_changes import LogitChanges
from models.drawing.noise import gumbel, key
from models.drawing.sampler import Draw, sample
from models.interface.generation import Sampling
from models.kernels import library
from models.kernels.noise import NEAR, exact_noise, hashed, near_noise

WIDTHS = (1, 2, 63, 1023, 1024, 1025, 5000)
TEMPERATURES = (0, 1e-6, 1.1e-5, 0.3, 1, 100)
FILTERS = [
    {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    for top_k, top_p, min_p in itertools.product(
        (0, 1, 7, 2000, 10**6), (1, 0.0, 0.50003, 0.95, 0.99999), (0, 0.05, 1, 2)
    )
]
"""Not half of tokens that are equal: torch's sums in float64 round there."""


def by_torch(monkeypatch, scores, draws):
    monkeypatch.setattr(library, "load", lambda: "none, in this test")
    try:
        return sample(scores, draws).read()
    finally:
        monkeypatch.undo()


def scores_of(chance, width, kind):
    """As real ones are, flat, equal, with many that are equal, far apart, and with some that are ruled out."""
    scores = torch.randn(len(FILTERS), width, generator=chance)
    factor, offset = {"flat": (0.01, 0), "equal": (0, -50), "apart": (1e4, 1e4)}.get(kind, (3, 0))
    scores = scores * factor + offset
    if kind == "ties":
        scores = scores.round()
    if kind == "ruled out":
        scores[torch.rand(scores.shape, generator=chance) < 0.9] = -math.inf
    return scores


@pytest.mark.parametrize("kind", ["real", "flat", "equal", "ties", "apart", "ruled out"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_draws_what_torch_draws(kernels, chance, monkeypatch, dtype, width, kind):
    del kernels
    seeds = random.Random(width)
    scores = scores_of(chance, width, kind).to(dtype)
    draws = [
        Draw(Sampling(temperature=seeds.choice(TEMPERATURES), seed=seeds.getrandbits(63), **one), seeds.randrange(5000))
        for one in FILTERS
    ]
    found, expected = sample(scores, draws).read(), by_torch(monkeypatch, scores, draws)
    assert [one.finite for one in found] == [one.finite for one in expected]
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert not theirs.finite or ours.token == theirs.token, draws[number].sampling


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 1.0])
@pytest.mark.parametrize("width", WIDTHS)
def test_of_what_masks_allow_it_draws_what_torch_draws(kernels, chance, monkeypatch, dtype, width, share):
    """Half of the rows have one, some with a token that is forbidden besides. The first token is in all masks."""
    del kernels
    seeds = random.Random(width)
    scores = scores_of(chance, width, "real").to(dtype)
    draws = []
    for number, one in enumerate(FILTERS):
        sampling = Sampling(temperature=seeds.choice(TEMPERATURES), seed=seeds.getrandbits(63), **one)
        bits = sum(1 << token for token in range(width) if token == 0 or seeds.random() < share)
        mask = bits.to_bytes(width // 8 + 1, "little") if number % 2 else None
        draws.append(Draw(sampling, number, None, mask, (0,) if number % 3 == 0 else ()))
    before = scores.clone()
    found, expected = sample(scores, draws).read(), by_torch(monkeypatch, scores, draws)
    assert torch.equal(scores, before)
    assert [one.finite for one in found] == [one.finite for one in expected]
    for draw, ours, theirs in zip(draws, found, expected, strict=True):
        assert not theirs.finite or ours.token == theirs.token, draw.sampling
        assert draw.allowed is None or draw.allowed[ours.token >> 3] >> (ours.token & 7) & 1


@pytest.mark.parametrize("beyond", [b"\x00\x00\x10", b"\x00\x00\x00\x80", b"", b"\x00"])
def test_the_end_is_drawn_too_early_if_nothing_else_is_in_the_vocabulary(kernels, chance, monkeypatch, beyond):
    """The mask may be longer than the row, or shorter."""
    del kernels
    scores = torch.randn(2, 20, generator=chance)
    draws = [Draw(Sampling(temperature=0), 0, None, b"\x02" + beyond, (1, 50)), Draw(Sampling(), 0, None, b"\xff" * 3)]
    for found in (sample(scores, draws).read(), by_torch(monkeypatch, scores, draws)):
        assert found[0].finite
        assert found[0].token == 1


def test_what_a_mask_rules_out_may_be_broken(kernels, chance):
    del kernels
    scores = torch.randn(2, 100, generator=chance)
    scores[:, 50] = math.nan
    (allowed, other) = sample(scores, [Draw(Sampling(), 0, None, b"\x06" + bytes(12)), Draw(Sampling(), 0)]).read()
    assert allowed.finite
    assert allowed.token in (1, 2)
    assert not other.finite


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("fields", [{}, {"top_p": 0.5}, {"top_k": 3}, {"top_k": 3, "top_p": 0.9, "min_p": 0.1}])
def test_a_broken_row_is_noticed_and_others_are_not_concerned(kernels, chance, broken, fields):
    del kernels
    scores = torch.randn(3, 3000, generator=chance)
    draws = [Draw(Sampling(temperature=0.7, seed=5, **fields), 0)] * 3
    sound = sample(scores, draws).read()
    for at in (0, 1500, 2999):
        spoilt = scores.clone()
        spoilt[1, at] = broken
        found = sample(spoilt, draws).read()
        assert [one.finite for one in found] == [True, False, True]
        assert (found[0], found[2]) == (sound[0], sound[2])


def test_noise_is_that_of_every_other_device_and_near_it_in_float32(kernels):
    del kernels

    @njit
    def computed(one, other, exact, near):
        for token in range(len(exact)):
            exact[token] = exact_noise(hashed(token, one, other))
            near[token] = near_noise(hashed(token, one, other))

    for seed in (0, 1, -5, 2**62):
        exact, near = np.empty(300_000, np.float32), np.empty(300_000, np.float32)
        computed(*key(seed, 7), exact, near)
        keys, tokens = torch.tensor([key(seed, 7)], dtype=torch.int32), torch.arange(300_000, dtype=torch.int32)
        assert np.array_equal(exact, gumbel(keys, tokens[None])[0].numpy())
        assert abs(near - exact).max() < NEAR / 10


def test_near_noise_is_near_at_both_ends(kernels):
    """Of 24 bits, those of the largest noise and of the smallest."""
    del kernels
    for bits in (*range(2000), *range(2**20 - 500, 2**20 + 500), *range(2**24 - 2000, 2**24)):
        assert abs(near_noise(bits) - exact_noise(bits)) < NEAR / 10, bits


def test_logits_are_as_before_after_a_draw(kernels, chance):
    """Penalties, biases and constraints change them for the time of a draw."""
    del kernels
    logits = torch.randn(4, 400, generator=chance)
    before = logits.clone()
    repeated = Sampling(repetition_penalty=1.3, presence_penalty=0.5, logit_bias=((7, 4.0),))
    frequent = Sampling(temperature=0, frequency_penalty=1.0)
    draws = [
        Draw(repeated, 2, LogitChanges.of(repeated, (5, 5), (9, 7))),
        Draw(Sampling(temperature=0), 2, None, b"\xff" * 3 + bytes(47), (3,)),
        Draw(Sampling(logprobs=2), 0, None, None, (1, 2)),
        Draw(frequent, 1, LogitChanges.of(frequent, (3,), (3,)), b"\x08" + bytes(49), (3,)),
    ]
    found = sample(logits, draws).read()
    assert torch.equal(logits, before)
    assert found[1].token < 24
    assert found[1].token != 3
    assert found[2].token not in (1, 2)
    assert found[3].token == 3, "it is forbidden, and nothing else is allowed"


@pytest.mark.parametrize(
    "fields",
    [
        {"presence_penalty": 0.5},
        {"frequency_penalty": -0.5},
        {"logit_bias": ((10**9, 1.0), (-1, 2.0))},
        {"repetition_penalty": 1.2},
    ],
)
def test_what_changes_no_logit_of_a_first_token_is_no_error(kernels, chance, fields):
    """Nothing was generated yet, or no such token is in the vocabulary."""
    del kernels
    logits = torch.randn(2, 50, generator=chance)
    sampling = Sampling(temperature=0, **fields)
    draws = [Draw(sampling, 0), Draw(sampling, 0, LogitChanges.of(sampling, ()))]
    assert [one.token for one in sample(logits, draws).read()] == logits.argmax(-1).tolist()


@pytest.mark.parametrize("fields", [{"top_k": 10}, {"top_k": 10, "top_p": 0.5}, {"top_p": 0.5}, {"min_p": 0.1}, {}])
@pytest.mark.parametrize(("score", "temperature"), [(2e38, 0.5), (1e34, 2e-5), (1.0, math.inf)])
def test_a_score_that_a_temperature_makes_infinite_ends(kernels, chance, score, temperature, fields):
    del kernels
    logits = torch.randn(1, 3000, generator=chance)
    logits[0, 100:2000], logits[0, 7] = -math.inf, score
    token = sample(logits, [Draw(Sampling(temperature=temperature, seed=3, **fields), 0)]).read()[0].token
    assert token == 7 or temperature == math.inf
    assert 0 <= token < 3000


def test_scores_that_a_temperature_makes_equal_are_in_the_order_of_tokens(kernels, monkeypatch):
    del kernels
    scores = torch.zeros(1, 8)
    scores[0, 2], scores[0, 5] = 1.900399923324585, 1.9004000425338745
    for seed in range(20):
        draws = [Draw(Sampling(temperature=1.9, top_k=1, seed=seed), 0)]
        assert sample(scores, draws).read() == by_torch(monkeypatch, scores, draws)
