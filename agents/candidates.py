"""Several answers to one request, of which readers get the best: `best_of`.

1. Generate the candidates in one batch, each with noise of its own; readers get nothing yet.
2. Rank them by their mean log probability plus, if the conversation has earlier turns and the worker an embedder, the
   cosine between the candidate and the mean of the earlier answers.
3. Write the choice to `tokens`, as `chosen` in the notice `plan`, and then the candidate.

The next owner of the partition finds the choice and generates that candidate alone, from the next token on.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from app.delivery.batches import Batches
from app.delivery.inflight import InFlightRequest
from app.delivery.partition import Partition
from models.embedder import Embedder, EmbedderError
from models.generation import Delta, End, Engine, Failure, FinishReason, Job, Sampling, Stream, StreamEvent
from models.token_stream import TokenStream

_MOST_EARLIER = 5
_NOISE_BITS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """All events of one candidate."""

    events: tuple[StreamEvent, ...]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Delta | End))

    @property
    def tokens(self) -> int:
        return sum(len(event.tokens) for event in self.events if isinstance(event, Delta))

    @property
    def mean_logprob(self) -> float:
        found = [one.logprob for event in self.events if isinstance(event, Delta) for one in event.logprobs]
        return fmean(found) if found else 0.0

    def without_logprobs(self) -> Candidate:
        """For readers who did not ask for them."""
        return Candidate(
            tuple(
                dataclasses.replace(event, logprobs=()) if isinstance(event, Delta) else event for event in self.events
            )
        )

    def stream(self) -> TokenStream:
        stream = TokenStream(lambda _stream, _reason: None)
        for event in self.events:
            stream.push(event)
        return stream


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """The candidate that readers get, its number, and how many tokens the others have."""

    number: int
    best: Candidate
    other_tokens: int


@dataclasses.dataclass(frozen=True, slots=True)
class NoChoice:
    """Why there is none, and what the candidates have cost: the prompt once, and the tokens of all of them."""

    why: Failure | FinishReason
    prompt_tokens: int
    tokens: int


def sampling_of_candidate(sampling: Sampling, number: int) -> Sampling:
    """Candidate 0 is the answer that the request would have without `best_of`."""
    return dataclasses.replace(sampling, seed=sampling.seed ^ (number << _NOISE_BITS))


class Candidates:
    def __init__(self, batches: Batches, embedder: Embedder | None) -> None:
        self._batches = batches
        self._embedder = embedder

    async def choose(
        self, partition: Partition, inflight: InFlightRequest, engine: Engine, job: Job, count: int
    ) -> Choice | NoChoice:
        """The choice among `count` candidates; none if all fail, or if the request is stopped."""
        streams: list[Stream] = []
        is_scored = job.sampling.logprobs is not None

        async def generate(number: int) -> Candidate:
            sampling = sampling_of_candidate(job.sampling, number)
            if not is_scored:
                sampling = dataclasses.replace(sampling, logprobs=0)
            mine = dataclasses.replace(job, id=f"{job.id}#{number}", sampling=sampling)
            async with self._batches.stream(partition.number, engine, mine, inflight) as stream:
                streams.append(stream)
                events = tuple([event async for event in stream])
            return Candidate(events)

        try:
            found = await asyncio.gather(*map(generate, range(count)))
        finally:
            for stream in streams:  # one has failed, and the others go on for nothing
                stream.cancel()
        if inflight.stop.reason is not None:
            return _no_choice(inflight.stop.reason, found)
        whole = {number: one for number, one in enumerate(found) if one.events and isinstance(one.events[-1], End)}
        if not whole:
            failures = (event for one in found for event in one.events if isinstance(event, Failure))
            unknown = Failure(0, "engine_error", "the engine stopped without finishing the candidates")
            return _no_choice(next(failures, unknown), found)
        best = await self._best(inflight, whole)
        shown = whole[best] if is_scored else whole[best].without_logprobs()
        return Choice(best, shown, sum(one.tokens for number, one in enumerate(found) if number != best))

    async def _best(self, inflight: InFlightRequest, candidates: dict[int, Candidate]) -> int:
        nearness = await self._nearness(inflight, [one.text for one in candidates.values()])
        scores = [one.mean_logprob + near for one, near in zip(candidates.values(), nearness, strict=True)]
        return list(candidates)[int(np.argmax(scores))]

    async def _nearness(self, inflight: InFlightRequest, texts: Sequence[str]) -> Sequence[float]:
        earlier = [turn.answer for turn in inflight.memory if turn.answer][-_MOST_EARLIER:]
        if self._embedder is None or not earlier:
            return [0.0] * len(texts)
        try:
            vectors = await self._embedder.embed([*texts, *earlier], query=True)
        except EmbedderError:
            return [0.0] * len(texts)
        usual = vectors[len(texts) :].mean(axis=0)
        length = float(np.linalg.norm(usual)) or 1.0
        return [float(vector @ usual) / length for vector in vectors[: len(texts)]]


def _no_choice(why: Failure | FinishReason, found: Sequence[Candidate]) -> NoChoice:
    ends = (one.events[-1] for one in found if one.events)
    prompt = max((end.usage.prompt_tokens for end in ends if isinstance(end, End)), default=0)
    return NoChoice(why, prompt, sum(one.tokens for one in found))
