"""Speculation changes how fast an answer is generated, and nothing else."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections import Counter

import pytest
import torch

from models.checkpoints.loading import CheckpointError
from models.engine import EngineOptions, TorchEngine
from models.engine.speculation.drafting import SpeculationMode
from models.engine.speculation.record import PROBE, Chance, Cost, Lookup
from models.interface.generation import ConstraintKind, OutputConstraint, Sampling
from tests.unit.models import tiny
from tests.unit.models.engine.reading import Answer, job, read
from tests.unit.models.engine.schedules import Free, Tally, make, run_schedule

PROMPT = tuple(range(10, 30))
CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47}  # chi-square at p = 0.001, by degrees of freedom


async def ask(engine, *jobs) -> list[Answer]:
    streams = engine.submit(jobs)
    return await asyncio.gather(
        *(read(stream, len(asked.generated)) for stream, asked in zip(streams, jobs, strict=True))
    )


def akin(checkpoint, share: float = 0.03):
    """A model that says almost the same as that of `checkpoint`."""
    other = tiny.model()
    torch.manual_seed(5)
    with torch.no_grad():
        for name, weight in tuple(other.named_parameters()):
            if weight.dim() > 1 and "embed" not in name:
                weight.add_(torch.randn_like(weight), alpha=share * 0.15)
    return dataclasses.replace(checkpoint, name="akin", model=other)


@pytest.fixture
async def pair(engines):
    """The same engine twice, plain and guessing; whatever can be guessed is."""

    async def both(mode=SpeculationMode.LOOKUP, draft=None, **options):
        plain = await engines(tiny.checkpoint(eos=True), **options)
        guessing = await engines(tiny.checkpoint(eos=True), speculation=mode, draft=draft, **options)
        guessing.speculation.cost = Free()
        return plain, guessing

    return both


WAYS = {
    "lookup": lambda: {"mode": SpeculationMode.LOOKUP},
    "draft": lambda: {"mode": SpeculationMode.AUTO, "draft": akin(tiny.checkpoint(eos=True))},
}
both_ways = pytest.mark.parametrize("way", WAYS)


# An answer of few words repeats itself, or a model of random weights would leave nothing to look up.
FEW_WORDS = tuple((token, 12.0) for token in range(40, 46))


def prompts(count: int, seed: int = 1) -> list[tuple[int, ...]]:
    chance = random.Random(seed)
    return [tuple(chance.randrange(5, 300) for _ in range(chance.randrange(2, 40))) for _ in range(count)]


async def compare(plain, guessing, jobs) -> None:
    without, within = await ask(plain, *jobs), await ask(guessing, *jobs)
    for one, other in zip(without, within, strict=True):
        assert one.tokens == other.tokens
        assert one.text == other.text
        assert one.reason == other.reason
    assert guessing.times.steps < plain.times.steps


@both_ways
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_answers_are_the_same_as_without_guessing(pair, way: str, temperature: float) -> None:
    plain, guessing = await pair(**WAYS[way](), max_running=128)
    bias = FEW_WORDS if way == "lookup" else ()
    jobs = [job(p, 40, sampling=Sampling(temperature, seed=n, logit_bias=bias)) for n, p in enumerate(prompts(100))]
    await compare(plain, guessing, jobs)
    assert guessing.speculation.right > 100
    assert guessing.speculation.right < guessing.speculation.guessed


@pytest.mark.slow
@both_ways
async def test_answers_to_many_prompts_are_the_same_as_without_guessing(pair, way: str) -> None:
    plain, guessing = await pair(**WAYS[way](), max_running=64)
    for seed in range(4):
        jobs = [
            job(p, 60, sampling=Sampling(n % 2 * 0.9, seed=n, logit_bias=FEW_WORDS))
            for n, p in enumerate(prompts(200, seed))
        ]
        await compare(plain, guessing, jobs)


@both_ways
async def test_constraints_penalties_stop_strings_and_logprobs_are_the_same(pair, way: str) -> None:
    plain, guessing = await pair(**WAYS[way]())
    schema = {"type": "object", "properties": {"status": {"enum": ["open", "closed"]}, "n": {"type": "integer"}}}
    schema |= {"required": ["status", "n"], "additionalProperties": False}
    jobs = [
        job(
            PROMPT, 60, constraint=OutputConstraint(ConstraintKind.JSON, json.dumps(schema)), sampling=Sampling(seed=3)
        ),
        job(PROMPT, 60, constraint=OutputConstraint(ConstraintKind.REGEX, "(ab|cd){3,9}")),
        job(PROMPT, 60, sampling=Sampling(0.0, presence_penalty=0.5, frequency_penalty=0.2, repetition_penalty=1.05)),
        job(PROMPT, 60, sampling=Sampling(0.7, top_k=20, top_p=0.9, min_p=0.01, seed=4)),
        job(PROMPT, 60, stop=("e",)),
        job((*PROMPT, *PROMPT), 33, generated=tuple(range(40, 50))),
    ]
    without, within = await ask(plain, *jobs), await ask(guessing, *jobs)
    for one, other in zip(without, within, strict=True):
        assert (one.tokens, one.text, one.reason) == (other.tokens, other.text, other.reason)
    assert guessing.speculation.right > 10


async def logprobs_of(engine, asked) -> list[float]:
    (stream,) = engine.submit([asked])
    return [entry.logprob async for event in stream for entry in getattr(event, "logprobs", ())]


async def test_logprobs_of_guessed_tokens_are_their_own(pair) -> None:
    plain, guessing = await pair()
    asked = job(PROMPT, 40, sampling=Sampling(0.0, logprobs=2))
    expected = await logprobs_of(plain, asked)
    assert await logprobs_of(guessing, asked) == pytest.approx(expected, abs=1e-4)
    assert len(expected) == 40


async def test_what_is_drawn_behind_a_guess_has_its_distribution(pair) -> None:
    """Second tokens of many seeds, where the first was the same, against the model's own probabilities."""
    _, guessing = await pair(**WAYS["draft"](), max_running=64, max_waiting=8192)
    draws = Sampling(temperature=1.5, top_k=4)
    jobs = [job(PROMPT, 4, sampling=dataclasses.replace(draws, seed=seed)) for seed in range(1200)]
    answers = [answer.tokens for answer in await ask(guessing, *jobs) if len(answer.tokens) > 1]
    assert guessing.speculation.right > 500
    first = Counter(tokens[0] for tokens in answers).most_common(1)[0][0]
    seen = Counter(tokens[1] for tokens in answers if tokens[0] == first)
    model = tiny.model()
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        best = model(torch.tensor([[*PROMPT, first]])).logits[0, -1].topk(4)
    likely = dict(zip(best.indices.tolist(), (best.values / 1.5).softmax(-1).tolist(), strict=True))
    total = sum(seen.values())
    assert set(seen) <= set(likely)
    expected = {token: p * total for token, p in likely.items() if p * total >= 5}
    assert len(expected) >= 2
    distance = sum((seen[token] - count) ** 2 / count for token, count in expected.items())
    assert distance < CRITICAL[len(expected)]


async def test_random_schedules_with_guesses_say_what_the_model_says() -> None:
    """Which of them preempt depends on how fast the machine is; one of them always does."""
    checkpoint, oracle = make("llama")
    tally = Tally()
    for seed in range(8):
        await run_schedule(checkpoint, oracle, seed, tally, speculative=True)
    assert tally.mismatches == 0
    assert tally.right > 0
    assert tally.preempted > 0


async def test_model_of_another_tokenizer_cannot_guess() -> None:
    class Other:
        def get_vocab(self):
            return {"a": 0}

    draft = dataclasses.replace(tiny.checkpoint(), name="other", tokenizer=Other())
    with pytest.raises(CheckpointError, match="their tokenizers differ"):
        TorchEngine(tiny.checkpoint(), EngineOptions(threads=1, speculation=SpeculationMode.AUTO, draft=draft))


@pytest.mark.parametrize("changes", [{"max_position_embeddings": 64}, {"padded": 64}])
async def test_model_of_a_shorter_context_or_a_larger_table_guesses_where_it_can(pair, changes) -> None:
    draft = akin(tiny.checkpoint(eos=True))
    if "padded" in changes:
        draft.model.resize_token_embeddings(len(tiny.tokenizer()) + changes["padded"])
    else:
        draft = dataclasses.replace(draft, context_length=changes["max_position_embeddings"])
    plain, guessing = await pair(mode=SpeculationMode.AUTO, draft=draft)
    constraint = OutputConstraint(ConstraintKind.REGEX, "[a-z ]{30}")
    jobs = [job(PROMPT, 30), job(tuple(range(5, 120)), 30), job(PROMPT, 40, constraint=constraint)]
    assert [one.tokens for one in await ask(guessing, *jobs)] == [one.tokens for one in await ask(plain, *jobs)]
    assert guessing._worker._speculation is not None
    assert guessing.speculation.right > 0


async def test_memory_of_the_model_that_guesses_is_within_what_the_cache_may_have(pair) -> None:
    draft = akin(tiny.checkpoint(eos=True))
    plain, guessing = await pair(mode=SpeculationMode.AUTO, draft=draft, kv_cache_gb=0.02)
    assert guessing.pool.pages == plain.pool.pages // 2, "it is as large a model"


async def test_model_that_cannot_guess_any_more_is_left_out_and_answers_go_on(pair) -> None:
    plain, guessing = await pair(**WAYS["draft"]())

    def broken(*_):
        raise RuntimeError("the draft is broken")

    guessing.speculation._draft.guess = broken
    asked = job(PROMPT, 20)
    assert (await ask(guessing, asked))[0].tokens == (await ask(plain, asked))[0].tokens


def test_lookup_finds_what_came_after_the_same_tokens_last() -> None:
    lookup = Lookup([1, 2, 3, 4, 5])
    tokens = [1, 2, 3, 9, 2, 3, 7, 8, 2, 3]
    assert lookup.guess(tokens, 2) == (7, 8)
    assert lookup.guess([*tokens, 5], 2) == ()
    assert lookup.guess([*tokens, 5, 1, 2, 3], 9) == (5, 1, 2, 3)


def test_cost_of_a_token_is_found_from_steps_of_different_sizes() -> None:
    cost = Cost()
    for tokens in (1, 2, 5, 9, 17, 33) * 5:
        cost.learn(tokens, 0.004 + 0.0005 * tokens)
    assert cost.of(20) == pytest.approx(0.014, rel=0.05)
    assert cost.each() == pytest.approx(0.0005, rel=0.05)
    cost.learn(1, 60.0)  # the machine slept
    assert cost.each() < 0.001


def test_guesses_that_do_not_pay_are_left_out_but_tried_now_and_then() -> None:
    chance = Chance(Chance())
    assert chance.worth(0.1) == 3  # right with one half each: an eighth is above a tenth, a sixteenth is not
    for _ in range(30):
        chance.learn(4, 0)
    assert [chance.worth(0.1) for _ in range(PROBE)] == [0] * (PROBE - 1) + [1]
    for _ in range(30):
        chance.learn(4, 4)
    assert chance.worth(0.1) == 8
    assert chance.worth(1.1) == 0
