"""Steps that are started before the ones before them are read; on a CPU, which computes them at once."""

import asyncio

import pytest

from models.drawing.sampler import Drawn
from models.interface.generation import ConstraintKind, OutputConstraint, Sampling
from tests.unit.models.engine.reading import GREEDY, job, read

PROMPTS = [tuple(range(10 + n, 40 + 2 * n)) for n in range(6)]


async def answers(engine, sampling, count=20):
    jobs = [job(prompt, count + n, sampling=sampling) for n, prompt in enumerate(PROMPTS)]
    return [answer.tokens for answer in await asyncio.gather(*map(read, engine.submit(jobs)))]


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=7), Sampling(top_p=0.8, top_k=20, seed=3)])
async def test_what_is_said_is_the_same_whether_or_not_steps_overlap(engines, sampling):
    one_by_one, overlapped = await engines(), await engines(overlaps=True)
    assert await answers(overlapped, sampling) == await answers(one_by_one, sampling)
    assert overlapped.times.followed > overlapped.times.steps / 2
    assert one_by_one.times.followed == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"sampling": Sampling(temperature=0, frequency_penalty=1.0)},
        {"sampling": Sampling(temperature=0, logprobs=1)},
        {"constraint": OutputConstraint(ConstraintKind.JSON, "")},
    ],
)
async def test_no_step_is_started_ahead_where_the_next_token_decides_about_it(engines, fields):
    engine = await engines(overlaps=True)
    await read(engine.submit([job(PROMPTS[0], 12, **fields)])[0])
    assert engine.times.followed == 0


async def test_an_answer_of_known_length_computes_no_token_for_nobody(engines):
    engine = await engines(overlaps=True)
    await read(engine.submit([job(PROMPTS[0], 12)])[0])
    assert engine.times.tokens == len(PROMPTS[0]) + 11
    assert engine.times.followed == 11


async def test_a_step_that_cannot_be_read_is_computed_again_and_so_is_the_one_behind_it(engines, monkeypatch):
    one_by_one, overlapped = await engines(), await engines(overlaps=True)
    expected = await answers(one_by_one, GREEDY)
    original, reads = Drawn.read, []

    def failing(self):
        reads.append(self)
        if len(reads) in {9, 30}:
            raise RuntimeError("the device failed for a moment")
        return original(self)

    monkeypatch.setattr(Drawn, "read", failing)
    assert await answers(overlapped, GREEDY) == expected
    assert len(reads) > 30
