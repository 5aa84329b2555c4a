"""A consumer that fetches in sessions, on a real broker that is killed meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.kafka.clients import consumer, producer
from app.kafka.fetch_session import use_fetch_sessions
from app.kafka.topics import create_topics
from app.local.kafka import KafkaCluster
from app.settings import Settings

PARTITIONS = 3
ROUNDS = 60


async def read(records: AIOKafkaConsumer, count: int) -> dict[int, list[int]]:
    """Read that many records, with a partition that pauses and one that is read again from before."""
    first, *_, last = sorted(records.assignment())
    found: defaultdict[int, list[int]] = defaultdict(list)
    has_gone_back = False
    async with asyncio.timeout(120):
        while sum(map(len, found.values())) < count:
            for at, batch in (await records.getmany(timeout_ms=100)).items():
                found[at.partition] += [int(record.value) for record in batch]
            records.pause(first)
            if found[last.partition] and not has_gone_back:
                has_gone_back = True
                records.seek(last, 0)
                found[last.partition] = []
            await asyncio.sleep(0)
            records.resume(first)
    return found


async def test_each_record_is_read_once_through_pauses_seeks_and_a_broker_that_is_killed(
    start_kafka: Callable[..., KafkaCluster],
) -> None:
    cluster = await asyncio.to_thread(start_kafka)
    settings = Settings(_env_file=None, broker=cluster.broker_setting, partitions=PARTITIONS)
    await create_topics(settings)
    topic = settings.topic("tokens")
    records, writer = consumer(settings.cluster), producer(settings.cluster)
    use_fetch_sessions(records)
    records.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    await records.start()
    await writer.start()
    try:
        reading = asyncio.create_task(read(records, ROUNDS * PARTITIONS))
        for number in range(ROUNDS):
            for partition in range(PARTITIONS):
                await writer.send_and_wait(topic, str(number).encode(), partition=partition)
            if number == ROUNDS // 2:
                await asyncio.to_thread(cluster.kill)
                await asyncio.to_thread(cluster.start)
        found = await reading
    finally:
        await records.stop()
        await writer.stop()
    assert found == {partition: list(range(ROUNDS)) for partition in range(PARTITIONS)}
