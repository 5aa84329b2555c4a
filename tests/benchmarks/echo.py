"""The floor: a plain aiokafka loop that answers each request with one record, and does nothing else.

python -m tests.benchmarks.echo SERVER REQUESTS_TOPIC REPLIES_TOPIC
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def echo(server: str, requests: str, replies: str) -> None:
    consumer = AIOKafkaConsumer(requests, bootstrap_servers=server, group_id=f"echo-{requests}")
    producer = AIOKafkaProducer(bootstrap_servers=server, enable_idempotence=True, acks="all", linger_ms=0)
    await producer.start()
    await consumer.start()
    print("ready", flush=True)
    async for record in consumer:
        await producer.send(replies, record.value, key=record.key, partition=record.partition)


if __name__ == "__main__":
    asyncio.run(echo(*sys.argv[1:4]))
