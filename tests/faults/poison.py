"""Records that no worker can answer, between good ones."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from app.kafka.topics import MAX_RECORD_BYTES
from tests.bad_records import BAD
from tests.faults.arena import Arena

GARBAGE = (b"rubbish", b'{"type": "dance"}', b"\xff", b"", b'{"type": "cancel"}')
USERS = 16


@dataclass(frozen=True)
class Poison:
    """Each gets its dead letter, and its sender an error where the record names its sender."""

    name: str = "poison records"

    async def inflict(self, arena: Arena) -> None:
        async with _producer(arena) as producer:
            for number, bad in enumerate(BAD):
                user, request_id = f"user-{number % USERS}", f"bad-{uuid.uuid4().hex}"
                key, value = bad.of(user, request_id)
                await _send(arena, producer, "requests", key, value)
                arena.errors_due["invalid_request"] += bad.is_reported
            for number, value in enumerate(GARBAGE):
                await _send(arena, producer, "controls", f"user-{number}".encode(), value)
        await arena.failed()


@dataclass(frozen=True)
class Oversize:
    """Prompts that are too long for the settings are refused by the worker, larger records by the broker."""

    name: str = "oversize records"

    async def inflict(self, arena: Arena) -> None:
        topic = arena.settings.topic("requests")
        async with _producer(arena) as producer:
            for size in (arena.settings.max_prompt_bytes + 1, MAX_RECORD_BYTES - 1000):
                for number in range(USERS):
                    key, value = _question(number, size)
                    await producer.send_and_wait(topic, value, key=key)
                    arena.errors_due["prompt_too_long"] += 1
            try:
                key, value = _question(0, MAX_RECORD_BYTES + 1000)
                await producer.send_and_wait(topic, value, key=key)
            except MessageSizeTooLargeError:
                pass
            else:
                arena.exits["the broker took a record that is too large"] += 1
        await arena.failed()


def _question(number: int, size: int) -> tuple[bytes, bytes]:
    user = f"user-{number}"
    asked = {"request_id": f"big-{uuid.uuid4().hex}", "user_id": user, "prompt": "x" * size}
    return user.encode(), json.dumps(asked).encode()


def _producer(arena: Arena) -> AIOKafkaProducer:
    return AIOKafkaProducer(**arena.settings.cluster.options(), max_request_size=4 * MAX_RECORD_BYTES)


async def _send(arena: Arena, producer: AIOKafkaProducer, topic: str, key: bytes | None, value: bytes | None) -> None:
    where = arena.settings.topic(topic)
    try:
        sent = await producer.send_and_wait(where, value, key=key)
    except KafkaError as error:
        arena.exits[f"{error!r} for a bad record"] += 1
        return
    arena.letters_due.add((where, sent.partition, sent.offset))
