from __future__ import annotations

import asyncio
import dataclasses
import tracemalloc
from typing import Any

import pytest

from app.features.cache.recordings import Recording, RecordingState, ResponseCache
from app.policy.file import CacheRules, Policy
from app.wire.codec import encode
from app.wire.event import EventType, Logprob, TokenEvent
from app.wire.record_size import MAX_RECORD_BYTES
from app.wire.request import Request
from app.wire.tools import ToolMode
from models.interface.generation import (
    Delta,
    End,
    Failure,
    FinishReason,
    Job,
    Sampling,
    StreamEvent,
    TokenLogprob,
    Usage,
)

GREEDY = Sampling(temperature=0.0, seed=1)
JOB = Job("ann/r1", (1, 2, 3), 10, sampling=GREEDY, user="ann")
DELTAS = [Delta(0, (7,), "seven"), Delta(1, (8, 9), " eight nine")]
END = End(3, FinishReason.STOP, Usage(3, 3, 1))


class Cached:
    def __init__(self, **rules: Any) -> None:
        self.now = 0.0
        self.cache = ResponseCache(Policy(cache=CacheRules(**{"ttl_s": 30, **rules})), lambda: self.now)

    def key(self, job: Job = JOB, version: str = "m@1", **fields: Any) -> bytes | None:
        return self.cache.key_of(request(**fields), version, job)

    def found(self, job: Job = JOB, **fields: Any) -> Recording | None:
        key = self.key(job, **fields)
        assert key is not None
        return self.cache.find(key)

    def record(self, *events: StreamEvent, **fields: Any) -> None:
        key = self.key(**fields)
        assert key is not None
        with self.cache.recording(key, request(**fields), JOB) as recording:
            for event in events:
                recording.add(event)


def request(**fields: Any) -> Request:
    return Request(**{"request_id": "r1", "user_id": "ann", "prompt": "why?", **fields})


async def read(recording: Recording | None) -> list[StreamEvent]:
    assert recording is not None
    return [event async for event in recording.follow()]


async def test_an_equal_request_gets_the_same_tokens_and_pays_for_no_prompt() -> None:
    cached = Cached()
    cached.record(*DELTAS, END)
    again = dataclasses.replace(JOB, id="ann/r2", sampling=dataclasses.replace(GREEDY, seed=2))
    whole = Delta(0, (7, 8, 9), "seven eight nine")
    assert await read(cached.found(again, request_id="r2")) == [whole, End(3, FinishReason.STOP, Usage(3, 3, 3))]
    cached.now = 30.1
    assert cached.found() is None
    assert (cached.cache.stats.hits, cached.cache.stats.misses) == (1, 1)


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(JOB, prompt=(1, 2)),
        dataclasses.replace(JOB, max_tokens=9),
        dataclasses.replace(JOB, stop=("x",)),
        dataclasses.replace(JOB, adapter="tone"),
        dataclasses.replace(JOB, min_tokens=1),
        dataclasses.replace(JOB, sampling=dataclasses.replace(GREEDY, logprobs=1)),
        dataclasses.replace(JOB, sampling=dataclasses.replace(GREEDY, repetition_penalty=1.1)),
    ],
)
def test_a_job_with_another_answer_has_another_key(other: Job) -> None:
    cached = Cached()
    assert cached.key(other) != cached.key()


def test_users_models_and_seeds_are_kept_apart() -> None:
    cached = Cached()
    drawn = [dataclasses.replace(JOB, sampling=Sampling(seed=seed)) for seed in (1, 2)]
    keys = {
        cached.key(),
        cached.key(user_id="bob"),
        cached.key(version="m@2"),
        *(cached.key(job, seed=job.sampling.seed) for job in drawn),
    }
    assert len(keys) == 5
    tenants = Cached(scope="tenant")
    assert tenants.key(tenant="a") == tenants.key(tenant="a", user_id="bob") != tenants.key(tenant="b")
    assert tenants.key() != tenants.key(user_id="bob"), "without a tenant, each user is alone"


@pytest.mark.parametrize(
    ("job", "fields"),
    [
        (dataclasses.replace(JOB, sampling=Sampling()), {}),
        (dataclasses.replace(JOB, generated=(7,)), {}),
        (JOB, {"cache": False}),
        (JOB, {"store": False}),
        (JOB, {"best_of": 2}),
        (JOB, {"tool_mode": ToolMode.KAFKA}),
    ],
)
def test_what_is_left_out(job: Job, fields: dict[str, Any]) -> None:
    assert Cached().key(job, **fields) is None


async def test_an_equal_request_follows_an_answer_that_is_being_generated() -> None:
    cached = Cached()
    key = cached.key()
    assert key is not None
    with cached.cache.recording(key, request(), JOB) as recording:
        recording.add(DELTAS[0])
        reading = asyncio.ensure_future(read(cached.found(request_id="r2")))
        await asyncio.sleep(0)
        recording.add(DELTAS[1])
        recording.add(END)
    assert [event.text for event in await reading] == ["seven", " eight nine", ""]
    assert cached.cache.stats.joins == 1


@pytest.mark.parametrize("end", [Failure(1, "engine_error", "no"), End(1, FinishReason.CANCELLED, Usage(3, 1)), None])
async def test_an_answer_that_breaks_off_is_not_kept_and_its_followers_have_no_end(end: StreamEvent | None) -> None:
    cached = Cached()
    key = cached.key()
    assert key is not None
    with cached.cache.recording(key, request(), JOB) as recording:
        recording.add(DELTAS[0])
        reading = asyncio.ensure_future(read(recording))
        await asyncio.sleep(0)
        if end is not None:
            recording.add(end)
    assert await reading == [DELTAS[0]]
    assert recording.state is RecordingState.ABANDONED
    assert cached.found() is None


async def test_an_erasure_drops_what_is_kept_and_what_is_being_recorded() -> None:
    cached = Cached(scope="tenant")
    cached.record(*DELTAS, END, tenant="a")
    cached.record(*DELTAS, END, tenant="a", user_id="bob", prompt="other")
    cached.cache.forget("ann")
    assert cached.found(tenant="a") is not None, "the other user's answer stays"
    cached.cache.forget("bob")
    assert cached.found(tenant="a") is None
    key = cached.key()
    assert key is not None
    with cached.cache.recording(key, request(), JOB) as recording:
        recording.add(DELTAS[0])
        cached.cache.forget("ann")
        recording.add(DELTAS[1])
        recording.add(END)
    assert cached.found() is None


async def test_a_follower_that_is_cancelled_ends_with_what_it_has() -> None:
    recording = Recording("ann", "r1", 3)
    recording.add(DELTAS[0])
    stream = recording.follow()
    stream.cancel(FinishReason.CANCELLED)
    recording.add(DELTAS[1])
    assert [event async for event in stream] == [DELTAS[0], End(1, FinishReason.CANCELLED, Usage(3, 1))]


def test_the_cache_is_bounded_and_its_rules_may_change() -> None:
    cached = Cached(max_mb=0.003)
    for number in range(20):
        job = dataclasses.replace(JOB, prompt=(number,))
        key = cached.key(job)
        assert key is not None
        with cached.cache.recording(key, request(), job) as recording:
            recording.add(Delta(0, (1,) * 20, "x"))
            recording.add(END)
    kept = [number for number in range(20) if cached.found(dataclasses.replace(JOB, prompt=(number,)))]
    assert 0 < len(kept) < 20
    assert 19 in kept
    cached.cache.use(Policy())
    assert cached.key() is None


def scored(count: int, begin: int = 0) -> tuple[TokenLogprob, ...]:
    """Log probabilities with 20 alternatives each."""
    return tuple(
        TokenLogprob(
            1000 + at, -0.1 * at - 0.01, tuple((5000 + at + rival, -1.5 * at - rival * 0.3) for rival in range(20))
        )
        for at in range(begin, begin + count)
    )


@pytest.mark.parametrize("is_prompt", [False, True])
def test_the_size_of_a_recording_is_what_it_occupies(is_prompt: bool) -> None:
    recording = Recording("u", "r", 10)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    if is_prompt:
        recording.add(Delta(0, (1,), "x", prompt_logprobs=scored(195)))
    for at in range(900):
        recording.add(Delta(at, (1000 + at,), f" word{at}", () if is_prompt else scored(1, at)))
    occupied = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert occupied / 2 < recording.size < occupied * 2


async def test_a_recording_that_outgrows_the_cache_is_abandoned_on_its_way() -> None:
    cached = Cached(max_mb=1)
    key = cached.key()
    assert key is not None
    with cached.cache.recording(key, request(), JOB) as recording:
        follower = recording.follow()
        for at in range(1000):
            recording.add(Delta(at, (at,), "x", scored(1, at)))
        assert recording.state is RecordingState.ABANDONED
        assert recording.events == []
        assert cached.cache.find(key) is None
        assert [event async for event in recording.follow()] == []
    read = [event async for event in follower]
    assert read
    assert all(isinstance(event, Delta) for event in read)
    assert cached.found() is None


async def test_a_repeated_answer_with_log_probabilities_leaves_in_records_that_kafka_takes() -> None:
    recording = Recording("u", "r", 10)
    recording.add(Delta(0, (0,), "x", scored(1), prompt_logprobs=scored(195)))
    for at in range(1, 1000):
        recording.add(Delta(at, (at,), "x", scored(1, at)))
    recording.add(End(1000, FinishReason.LENGTH, Usage(10, 1000)))
    *deltas, end = await read(recording)
    assert isinstance(end, End)
    index = 0
    for delta in deltas:
        assert isinstance(delta, Delta)
        assert delta.index == index
        index += len(delta.tokens)
        assert 4 * len(event_of(delta)) < MAX_RECORD_BYTES
    assert index == 1000
    assert len(deltas) < 100


def event_of(delta: Delta) -> bytes:
    def told(one: TokenLogprob) -> Logprob:
        rivals = tuple(Logprob(token, "a token", logprob) for token, logprob in one.top)
        return Logprob(one.token, "a token", one.logprob, rivals)

    scores = {"logprobs": tuple(map(told, delta.logprobs)), "prompt_logprobs": tuple(map(told, delta.prompt_logprobs))}
    event = TokenEvent(type=EventType.TOKEN, index=delta.index, tokens=delta.tokens, text=delta.text, **scores)
    return encode(event)[0]
