"""Several answers to one request, of which readers get the best: `best_of`.

1. Generate the candidates in one batch, each with noise of its own; readers get nothing yet.
2. Let a plug-in choose: one of the policy, or Parley's own (app/features/own/best_answer.py).
3. Write the choice to `tokens`, as `chosen` in the notice `plan`, and then the candidate.

The next owner of the partition finds the choice and generates that candidate alone, from the next token on.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from statistics import fmean

import msgspec
from parley_client.plugins import Candidate

from app.answering.dialogue import Dialogue
from app.answering.run import Over, Run
from app.answering.stage import Feature, Generate, Stage
from app.features.plugged import PluggedIn
from models.interface.generation import Delta, End, Failure, Job, Sampling, StreamEvent, Usage
from models.interface.token_stream import TokenStream

_NOISE_BITS = 32

Events = tuple[StreamEvent, ...]


def sampling_of_candidate(sampling: Sampling, number: int) -> Sampling:
    """Candidate 0 is the answer that the request would have without `best_of`."""
    return dataclasses.replace(sampling, seed=sampling.seed ^ (number << _NOISE_BITS))


class BestOf(Feature):
    def __init__(self, plugged: PluggedIn) -> None:
        self._plugged = plugged

    @property
    def is_on(self) -> bool:
        return False

    def stage(self, run: Run) -> Stage | None:
        return Choosing(run, self._plugged) if (run.accepted.request.best_of or 1) > 1 else None


class Choosing(Stage):
    def __init__(self, run: Run, plugged: PluggedIn) -> None:
        super().__init__(run)
        self._plugged = plugged

    def generate(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        answer = self.run.answer
        if answer.plan.chosen is None and not answer.index:
            return self._best(job, then)
        number = answer.plan.chosen or 0
        return then(dataclasses.replace(job, sampling=sampling_of_candidate(job.sampling, number)))

    async def _best(self, job: Job, then: Generate) -> AsyncGenerator[StreamEvent, None]:
        """All events of the best candidate, or the failure if all fail."""
        candidates = await self._candidates(job, then)
        whole = {number: one for number, one in enumerate(candidates) if one and isinstance(one[-1], End)}
        if (reason := self.run.inflight.stop.reason) is not None:
            raise Over(End(0, reason, _usage_of(candidates)))
        if not whole:
            usage = _usage_of(candidates)
            self.run.spent += usage.prompt_tokens + usage.completion_tokens
            failures = (event for one in candidates for event in one if isinstance(event, Failure))
            yield next(failures, Failure(0, "engine_error", "the engine stopped without finishing the candidates"))
            return
        best = await self._best_of(whole)
        others = sum(_tokens_of(one) for number, one in enumerate(candidates) if number != best)
        await self.run.replan(msgspec.structs.replace(self.run.answer.plan, chosen=best, other_tokens=others))
        stream = TokenStream(lambda _stream, _reason: None)  # it gathers the tokens into few events
        for event in whole[best]:
            stream.push(event if job.sampling.logprobs is not None else _without_logprobs(event))
        async for event in stream:
            yield event

    async def _candidates(self, job: Job, then: Generate) -> Sequence[Events]:
        async def generate(number: int) -> Events:
            sampling = sampling_of_candidate(job.sampling, number)
            if sampling.logprobs is None:
                sampling = dataclasses.replace(sampling, logprobs=0)
            async with aclosing(then(dataclasses.replace(job, id=f"{job.id}#{number}", sampling=sampling))) as events:
                return tuple([event async for event in events])

        count = self.run.accepted.request.best_of or 1
        running = [asyncio.ensure_future(generate(number)) for number in range(count)]
        try:
            return await asyncio.gather(*running)
        finally:
            for one in running:  # one has failed, and the others go on for nothing
                one.cancel()

    async def _best_of(self, candidates: dict[int, Events]) -> int:
        run = self.run
        seen = await run.see(Dialogue(run.accepted.request, run.memory))
        described = [Candidate(_text_of(one), _mean_logprob(one)) for one in candidates.values()]
        earlier = [turn.answer for turn in seen.memory if turn.answer]
        chosen = self._plugged.choosing.choose(seen.request.question, described, earlier)
        return list(candidates)[await run.unless_stopped(chosen)]


def _text_of(events: Events) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta | End))


def _tokens_of(events: Events) -> int:
    return sum(len(event.tokens) for event in events if isinstance(event, Delta))


def _mean_logprob(events: Events) -> float:
    logprobs = [one.logprob for event in events if isinstance(event, Delta) for one in event.logprobs]
    return fmean(logprobs) if logprobs else 0.0


def _usage_of(candidates: Sequence[Events]) -> Usage:
    """What the candidates have cost: the prompt once, and the tokens of all of them."""
    ends = (one[-1] for one in candidates if one)
    prompt = max((end.usage.prompt_tokens for end in ends if isinstance(end, End)), default=0)
    return Usage(prompt, sum(map(_tokens_of, candidates)))


def _without_logprobs(event: StreamEvent) -> StreamEvent:
    """For readers who did not ask for them."""
    return dataclasses.replace(event, logprobs=()) if isinstance(event, Delta) else event
