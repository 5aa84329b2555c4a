from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from agents.candidates import Candidates, Choice, NoChoice, sampling_of_candidate
from app.delivery.batches import Batches

from app.delivery.inflight import InFlightRequest
from models.generation import Delta, End, Failure, FinishReason, Job, Sampling, Stream, StreamEvent, TokenLogprob, Usage
from models.token_stream import TokenStream
from tables.records import Turn
from tests.unit.agents.inflight_requests import inflight_of

JOB = Job("ann/r1", (1, 2), 10, sampling=Sampling(seed=5, logprobs=0))
PARTITION = cast(Any, SimpleNamespace(number=0))


def answer(text: str, *logprobs: float) -> list[StreamEvent]:
    tokens = tuple(range(len(logprobs)))
    scores = tuple(TokenLogprob(token, logprob) for token, logprob in zip(tokens, logprobs, strict=True))
    return [Delta(0, tokens, text, scores), End(len(tokens), FinishReason.STOP, Usage(2, len(tokens)))]


class Scripted:
    """An engine whose n-th job has the n-th of `answers`; one without events never ends by itself."""

    has_room = True

    def __init__(self, *answers: list[StreamEvent]) -> None:
        self._answers = list(answers)
        self.jobs: list[Job] = []

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        return [self._stream(job) for job in jobs]

    def _stream(self, job: Job) -> TokenStream:
        self.jobs.append(job)
        stream = TokenStream(lambda stream, reason: stream.push(End(0, reason, Usage(2, 0))))
        for event in self._answers[len(self.jobs) - 1]:
            stream.push(event)
        return stream


class Embeds:
    """The direction of a text is its first letter's."""

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        assert query
        return np.array([[text[0] == "a", text[0] == "b"] for text in texts], dtype=np.float32)


async def choose(engine: Scripted, inflight: InFlightRequest | None = None, embedder: Any = None) -> Any:
    candidates = Candidates(Batches(max_size=8, budget_s=0.0), embedder)
    count = len(engine._answers)
    return await candidates.choose(PARTITION, inflight or inflight_of(), cast(Any, engine), JOB, count)


async def test_the_likeliest_candidate_is_chosen_and_the_others_are_counted() -> None:
    engine = Scripted(answer("a", -2.0, -2.0), answer("b", -0.5), answer("c", -1.0, -1.0, -1.0))
    choice = await choose(engine)
    assert isinstance(choice, Choice)
    assert (choice.number, choice.best.text, choice.other_tokens) == (1, "b", 5)
    assert all(event.logprobs for event in choice.best.events if isinstance(event, Delta))
    assert [job.sampling for job in engine.jobs] == [sampling_of_candidate(JOB.sampling, at) for at in range(3)]
    assert engine.jobs[0].sampling == JOB.sampling


async def test_readers_who_did_not_ask_for_log_probabilities_get_none() -> None:
    engine = Scripted(answer("a", -2.0), answer("b", -1.0))
    silent = replace(JOB, sampling=replace(JOB.sampling, logprobs=None))
    candidates = Candidates(Batches(max_size=8, budget_s=0.0), None)
    choice = await candidates.choose(PARTITION, inflight_of(), cast(Any, engine), silent, 2)
    assert isinstance(choice, Choice)
    assert (choice.number, choice.best.text, choice.best.mean_logprob) == (1, "b", 0.0)
    assert {job.sampling.logprobs for job in engine.jobs} == {0}


async def test_a_candidate_like_the_earlier_answers_is_preferred() -> None:
    inflight = inflight_of()
    inflight.memory = (Turn("r0", "why?", "because", 1),)
    engine = Scripted(answer("a", -1.0), answer("b", -1.3))
    assert (await choose(engine, inflight, Embeds())).number == 1
    assert (await choose(Scripted(answer("a", -1.0), answer("b", -2.5)), inflight, Embeds())).number == 0
    assert (await choose(Scripted(answer("a", -1.0), answer("b", -1.3)), inflight)).number == 0


async def test_candidates_that_fail_are_left_out_and_if_all_do_so_does_the_answer() -> None:
    failure = Failure(0, "engine_error", "no")
    assert (await choose(Scripted([failure], answer("b", -9.0)))).number == 1
    begun = [Delta(0, (1, 2), "b"), failure]
    assert await choose(Scripted([failure], begun)) == NoChoice(failure, 0, 2)


@pytest.mark.parametrize("finished", [(), (0,)])
async def test_a_stop_ends_every_candidate_even_if_some_are_complete(finished: tuple[int, ...]) -> None:
    engine = Scripted(*(answer("a", -1.0) if number in finished else [] for number in range(3)))
    inflight = inflight_of()
    choosing = asyncio.ensure_future(choose(engine, inflight))
    await asyncio.sleep(0.05)
    inflight.stop.now(FinishReason.CANCELLED)
    none = await asyncio.wait_for(choosing, 5)
    assert none == NoChoice(FinishReason.CANCELLED, 2, len(finished))
