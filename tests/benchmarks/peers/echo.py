"""The floor of Kafka: a plain aiokafka loop that answers each request with one record, and does nothing else."""

from __future__ import annotations

import asyncio
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.benchmarks.peers.lifetime import end_with_parent


async def echo(server: str, requests: str, replies: str) -> None:
    consumer = AIOKafkaConsumer(requests, bootstrap_servers=server, group_id=requests, auto_offset_reset="earliest")
    producer = AIOKafkaProducer(bootstrap_servers=server, enable_idempotence=True, acks="all", linger_ms=0)
    await producer.start()
    await consumer.start()
    while not consumer.assignment():
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    async for record in consumer:
        await producer.send(replies, record.value, key=record.key, partition=record.partition)


if __name__ == "__main__":
    end_with_parent()
    asyncio.run(echo(os.environ["BENCH_SERVER"], os.environ["BENCH_REQUESTS"], os.environ["BENCH_REPLIES"]))
