"""Topics that need no hurry are fetched in rounds, and lose nothing by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from app.faust.tuning import OFTEN, ROUND_S, FetchThrottle
from app.settings import Settings


@pytest.fixture
async def producer(settings: Settings) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(**settings.cluster.options())
    await producer.start()
    yield producer
    await producer.stop()


@pytest.fixture
async def consumer(settings: Settings) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(**settings.cluster.options(), auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition(settings.topic(name), 0) for name in ("requests", "turns")])
    yield consumer
    await consumer.stop()


async def test_what_comes_to_a_topic_in_its_rest_waits_for_the_next_round_and_others_do_not(
    settings: Settings, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, rests = asyncio.get_running_loop(), list[Callable[[], None]]()
    requests, turns = (TopicPartition(settings.topic(name), 0) for name in ("requests", "turns"))
    rounds = FetchThrottle(frozenset({turns.topic}))

    async def say(at: TopicPartition, value: bytes) -> None:
        await producer.send_and_wait(at.topic, value, partition=at.partition)

    async def take() -> dict[TopicPartition, list[bytes]]:
        fetched = await consumer.getmany(timeout_ms=60_000)
        rounds.fetched(consumer, fetched)
        return {at: [record.value for record in records] for at, records in fetched.items()}

    await say(turns, b"1")
    assert await take() == {turns: [b"1"]}
    assert consumer.paused() == set(), "one now and then is fetched when it comes"
    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_later", lambda _s, then: rests.append(then))
        rounds.fetched(consumer, {turns: [b""] * 2 * OFTEN})
    assert consumer.paused() == {turns}
    await say(turns, b"2")
    await say(requests, b"hurry")
    assert await take() == {requests: [b"hurry"]}
    (rest_is_over,) = rests
    rest_is_over()
    assert await take() == {turns: [b"2"]}


async def test_a_partition_that_goes_in_its_rest_is_left_alone(settings: Settings, consumer: AIOKafkaConsumer) -> None:
    rounds, turns = FetchThrottle(frozenset({settings.topic("turns")})), TopicPartition(settings.topic("turns"), 0)
    rounds.fetched(consumer, {turns: [b""] * (OFTEN + 1)})
    assert consumer.paused() == {turns}
    consumer.assign([TopicPartition(settings.topic("turns"), 1)])
    await asyncio.sleep(2 * ROUND_S)
    assert consumer.paused() == set()
