import pytest
import torch

from models.drawing.logit_changes import LogitChanges
from models.drawing.noise import gumbel, key
from models.drawing.sampler import Draw, _chooser, sample
from models.interface.generation import Sampling

VOCABULARY = 500


def logits(rows=1, seed=0):
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 3


def draw(index=0, tokens=(), **fields):
    sampling, prompt = Sampling(**fields), len(tokens) - index
    return Draw(sampling, index, LogitChanges.of(sampling, tokens[:prompt], tokens[prompt:]))


def drawn(logits, draws):
    return [found.token for found in sample(logits, draws).read()]


def test_temperature_zero_takes_the_largest():
    assert drawn(logits(5), [draw(temperature=0)] * 5) == logits(5).argmax(-1).tolist()


def test_a_row_draws_the_same_in_any_batch_and_at_any_place():
    rows = logits(64)
    kinds = [
        {},
        {"top_k": 7},
        {"top_p": 0.8},
        {"top_k": 40, "top_p": 0.5},
        {"temperature": 0},
        {"temperature": 2},
    ]
    draws = [draw(index=n, seed=n, **kinds[n % len(kinds)]) for n in range(64)]
    alone = [drawn(rows[n : n + 1], [draws[n]])[0] for n in range(64)]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1)).tolist()
    together = drawn(rows[order], [draws[n] for n in order])
    assert [together[order.index(n)] for n in range(64)] == alone


def test_noise_is_the_same_bits_wherever_it_is_computed():
    tokens = torch.arange(1003, dtype=torch.int32).unsqueeze(0)
    keys = torch.tensor([key(seed, seed * 7) for seed in range(20)], dtype=torch.int32)
    together = gumbel(keys, tokens)
    for row in range(20):
        assert torch.equal(gumbel(keys[row : row + 1], tokens)[0], together[row])
        assert torch.equal(gumbel(keys[row : row + 1], tokens[:, 500:517])[0], together[row, 500:517])


def test_noise_is_gumbel_noise_and_differs_by_seed_and_index():
    tokens = torch.arange(20000, dtype=torch.int32).unsqueeze(0)
    keys = torch.tensor([key(1, 0), key(1, 1), key(2, 0), key(-3, 2**40)], dtype=torch.int32)
    noise = gumbel(keys, tokens)
    assert noise.isfinite().all()
    assert noise.mean(1) == pytest.approx(torch.full((4,), 0.5772), abs=0.03)
    assert noise.std(1) == pytest.approx(torch.full((4,), 1.2825), abs=0.03)
    close = torch.corrcoef(noise) - torch.eye(4)
    assert close.abs().max() < 0.03


def test_what_is_drawn_follows_the_distribution():
    row = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125]])).repeat(4000, 1)
    found = torch.tensor(drawn(row, [draw(index=n, seed=9) for n in range(4000)]))
    assert found.bincount(minlength=4) / 4000 == pytest.approx(torch.tensor([0.5, 0.25, 0.125, 0.125]), abs=0.03)


def test_top_k_and_top_p_leave_what_they_should_and_all_of_it():
    row = torch.log(torch.tensor([[0.4, 0.3, 0.2, 0.1]])).repeat(2000, 1)

    def seen(**fields):
        return set(drawn(row, [draw(index=n, **fields) for n in range(2000)]))

    assert seen() == {0, 1, 2, 3}
    assert seen(top_k=2) == {0, 1}
    assert seen(top_p=0.65) == {0, 1}
    assert seen(top_p=0.75) == {0, 1, 2}
    assert seen(top_p=0.0) == {0}
    assert seen(top_k=3, top_p=0.7) == {0, 1}, "top_p counts what top_k left"
    assert seen(top_k=1) == {0}
    assert seen(min_p=0.6) == {0, 1}
    assert seen(min_p=0.2) == {0, 1, 2, 3}


def test_a_row_that_is_not_finite_is_told_and_its_neighbours_go_on():
    rows = logits(4)
    expected = drawn(rows, [draw(temperature=0)] * 4)
    rows[1, 7] = torch.nan
    rows[2, 7] = torch.inf
    for fields in ({"temperature": 0}, {"temperature": 1e-6}):
        found = sample(rows, [draw(**fields)] * 4).read()
        assert [token.finite for token in found] == [True, False, False, True]
        assert [found[row].token for row in (0, 3)] == [expected[row] for row in (0, 3)]


def test_penalties_and_biases_change_their_own_row_alone():
    rows = torch.tensor([[4.0, 3.0, -1.0, 0.0]]).repeat(6, 1)
    before = rows.clone()
    tokens = [1, 0, 0]  # a prompt of one token, an answer of two
    greedy = {"temperature": 0, "index": 2, "tokens": tokens}
    draws = [
        draw(**greedy),
        draw(**greedy, frequency_penalty=0.6),
        draw(**greedy, presence_penalty=0.9),
        draw(**greedy, presence_penalty=0.9, frequency_penalty=0.06),
        draw(**greedy, repetition_penalty=2.0, logit_bias=((3, 2.5),)),
        draw(**greedy, logit_bias=((2, 5.5), (10**9, 1.0))),
    ]
    assert drawn(rows, draws) == [0, 1, 0, 1, 3, 2]
    assert torch.equal(rows, before)


def test_logprobs_are_the_models_own_before_temperature_and_filters():
    row = torch.log(torch.tensor([[0.5, 0.25, 0.125, 0.125]]))
    (found,) = sample(row, [draw(temperature=3.0, top_k=1, logprobs=2)]).read()
    assert found.logprob.token == 0
    assert found.logprob.logprob == pytest.approx(-0.6931, abs=1e-3)
    assert [token for token, _ in found.logprob.top] == [0, 1]
    assert sample(row, [draw()]).read()[0].logprob is None


def test_tokens_are_chosen_by_one_script_on_a_cpu():
    assert isinstance(_chooser("cpu"), torch.jit.ScriptFunction)


@pytest.mark.parametrize("beside", [{"top_k": 0, "top_p": 0.95}, {"top_k": 300}, {}])
def test_equal_scores_do_not_make_a_row_depend_on_what_its_neighbours_keep(beside):
    """bfloat16 has some hundred values near the top, so the edge of top_k is nearly always among equal ones."""
    rows = (4 * torch.randn(200, 8000, generator=torch.Generator().manual_seed(3))).bfloat16()
    draws = [draw(seed=n, top_k=50, top_p=0.9) for n in range(200)]
    alone = [drawn(rows[n : n + 1], [one])[0] for n, one in enumerate(draws)]
    together = [drawn(rows[[n, 0]], [one, draw(**beside)])[0] for n, one in enumerate(draws)]
    assert together == alone


@pytest.mark.parametrize("temperature", [1e-300, 1e-40, 1e-6])
def test_a_temperature_too_small_to_divide_by_is_greedy(temperature):
    rows = logits(4)
    assert drawn(rows, [draw(temperature=temperature)] * 4) == rows.argmax(dim=-1).tolist()
