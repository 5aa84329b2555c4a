import asyncio
import dataclasses
import random

import pytest
import torch

from models.engine import SpeculationMode
from models.interface.generation import Delta, End, FinishReason
from tests.unit.models import tiny
from tests.unit.models.engine.reading import job, read

CHECKPOINT = tiny.checkpoint()
MODEL = tiny.model().eval()


def prompt_of(length, seed=0):
    return tuple(random.Random(seed).randrange(5, 300) for _ in range(length))


def expected(prompt):
    """The model's own log probabilities [tokens - 1, vocabulary]."""
    with torch.inference_mode():
        return MODEL(torch.tensor([prompt])).logits[0, :-1].float().log_softmax(dim=-1)


def check(prompt, scores, top):
    own = expected(prompt)
    assert [one.token for one in scores] == list(prompt[1:])
    for one, logprobs in zip(scores, own, strict=True):
        assert one.logprob == pytest.approx(float(logprobs[one.token]), abs=1e-4)
        assert abs(one.rank - 1 - int((logprobs > logprobs[one.token]).sum())) <= int(
            (abs(logprobs - logprobs[one.token]) < 1e-4).sum()
        )
        best = logprobs.topk(top).values.tolist()
        assert [logprob for _, logprob in one.top] == pytest.approx(best, abs=1e-4)


async def scores_of(stream):
    events = [event async for event in stream]
    deltas = [event for event in events if isinstance(event, Delta)]
    assert not any(delta.prompt_logprobs for delta in deltas[1:])
    assert isinstance(events[-1], End)
    return deltas[0].prompt_logprobs


@pytest.mark.parametrize("length", [2, 3, 16, 128, 129, 130, 300])
async def test_the_scores_are_the_models_own_at_every_length(engines, length):
    engine = await engines()
    prompt = prompt_of(length)
    (stream,) = engine.submit([job(prompt, 3, prompt_logprobs=2)])
    check(prompt, await scores_of(stream), 2)


async def test_a_draft_model_does_not_score_the_prompt(engines):
    engine = await engines(speculation=SpeculationMode.AUTO, draft=tiny.checkpoint())
    prompts = [prompt_of(length, length) for length in (20, 150)]
    streams = engine.submit([job(prompt, 30, prompt_logprobs=2) for prompt in prompts])
    for prompt, scores in zip(prompts, await asyncio.gather(*map(scores_of, streams)), strict=True):
        check(prompt, scores, 2)
    assert engine.speculation.guessed > 0


async def test_a_prompt_of_one_token_has_no_scores(engines):
    engine = await engines()
    (stream,) = engine.submit([job(prompt_of(1), 3, prompt_logprobs=2)])
    assert await scores_of(stream) == ()


async def test_a_known_prompt_is_scored_again_and_its_answer_is_the_same(engines):
    engine = await engines()
    prompt = prompt_of(100)
    (first,) = engine.submit([job(prompt, 8)])
    plain = await read(first)
    (again,) = engine.submit([job(prompt, 8, prompt_logprobs=0)])
    events = [event async for event in again]
    check(prompt, events[0].prompt_logprobs, 0)
    assert [token for event in events[:-1] for token in event.tokens] == plain.tokens
    assert events[-1].usage.cached_tokens == 0


async def test_scored_prompts_among_others_and_in_little_memory_are_right(engines):
    engine = await engines(pages=60, max_running=6)
    prompts = [prompt_of(length, length) for length in (150, 200, 90, 260, 40, 129)]
    scored = [job(prompt, 20, prompt_logprobs=number) for number, prompt in enumerate(prompts)]
    others = [job(prompt_of(60, 1000 + number), 40) for number in range(6)]
    streams = engine.submit([one for pair in zip(scored, others, strict=True) for one in pair])
    found = await asyncio.gather(*(scores_of(stream) for stream in streams[::2]), *(read(one) for one in streams[1::2]))
    for number, prompt in enumerate(prompts):
        check(prompt, found[number], number)


async def test_an_answer_that_ends_at_once_still_has_the_scores_of_its_prompt(engines):
    prompt = prompt_of(30)
    engine = await engines()
    (stream,) = engine.submit([job(prompt, 1)])
    first = (await read(stream)).tokens[0]
    engine = await engines(dataclasses.replace(CHECKPOINT, eos=frozenset({first})))
    (stream,) = engine.submit([job(prompt, 5, prompt_logprobs=1)])
    delta, end = [event async for event in stream]
    check(prompt, delta.prompt_logprobs, 1)
    assert (delta.tokens, delta.text, end.reason, end.index) == ((), "", FinishReason.STOP, 0)


async def test_a_resumed_answer_does_not_report_the_scores_again(engines):
    engine = await engines()
    prompt = prompt_of(30)
    (stream,) = engine.submit([job(prompt, 5)])
    known = (await read(stream)).tokens
    (stream,) = engine.submit([job(prompt, 5, prompt_logprobs=1, generated=tuple(known[:2]))])
    assert await scores_of(stream) == ()


async def test_a_reader_that_falls_behind_gets_the_scores(engines):
    engine = await engines()
    prompt = prompt_of(30)
    slow, other = engine.submit([job(prompt, 5, prompt_logprobs=1), job(prompt_of(9, 1), 40)])
    await read(other)
    check(prompt, await scores_of(slow), 1)


async def test_logits_that_are_not_finite_fail_the_answer_and_no_other(engines):
    engine = await engines(tiny.checkpoint())
    engine._runner.model.get_input_embeddings().weight.data[299] = float("nan")
    bad, good = engine.submit([job((7, 299, 8, 9), 5, prompt_logprobs=1), job(prompt_of(20), 5)])
    answers = await asyncio.gather(read(bad), read(good))
    assert [answer.reason for answer in answers] == ["engine_error", "length"]
