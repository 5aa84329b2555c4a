"""Requests for the fault tests: many users, several conversations, in a row."""

from __future__ import annotations

import json
from collections.abc import Iterator

from aiokafka import AIOKafkaProducer

from app.settings import Settings


def requests(count: int, *, users: int, tokens: int, prefix: str = "r") -> Iterator[dict]:
    """`count` requests in turn of `users` users; the n-th of a user follows the one before in its conversation."""
    for number in range(count):
        user = f"user-{number % users}"
        yield {
            "request_id": f"{prefix}{number}",
            "user_id": user,
            "prompt": f"question {number} of {user}",
            "max_tokens": tokens,
        }


async def send(settings: Settings, batch: Iterator[dict] | list[dict]) -> int:
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, enable_idempotence=True)
    await producer.start()
    try:
        deliveries = [
            await producer.send(settings.topic("requests"), json.dumps(one).encode(), key=one["user_id"].encode())
            for one in batch
        ]
        for delivery in deliveries:
            await delivery
        return len(deliveries)
    finally:
        await producer.stop()
