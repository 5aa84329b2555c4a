"""Records that are made to stall a partition: each has its one dead letter, and what stands behind it is answered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer

from app.wire.event import EventType
from app.wire.record_size import MAX_RECORD_BYTES
from tests.integration.worker.client import Client

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True)
class Hostile:
    """`value` is made of the user and the request id; `is_reported` where the sender gets an error event."""

    name: str
    value: Callable[[str, str], bytes]
    compression: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    is_reported: bool = False


def long_enum(user: str, request_id: str) -> bytes:
    return json.dumps({"request_id": request_id, "user_id": user, "prompt": "x", "priority": "a" * 1_000_000}).encode()


def many_fields(user: str, request_id: str) -> bytes:
    return json.dumps({"request_id": request_id, "user_id": user, "prompt": 1, "x" * 900_000: 1}).encode()


HOSTILE = [
    Hostile("garbage as large as a record may be", lambda *_: b"x" * (MAX_RECORD_BYTES - 200)),
    Hostile("a value that the error would quote", long_enum, is_reported=True),
    Hostile("a name of a megabyte", many_fields, is_reported=True),
    Hostile("3 MiB of zeros in gzip", lambda *_: b"\0" * (3 << 20), "gzip"),
    Hostile("a large value and large headers", lambda *_: b"x" * 600_000, headers=(("h", b"y" * 400_000),)),
]


async def send(client: Client, user: str, hostile: Hostile, request_id: str) -> tuple[int, int, bytes]:
    value = hostile.value(user, request_id)
    producer = AIOKafkaProducer(
        **client.settings.cluster.options(), max_request_size=128 << 20, compression_type=hostile.compression
    )
    await producer.start()
    try:
        sent = await producer.send_and_wait(
            client.settings.topic("requests"), value, key=user.encode(), headers=list(hostile.headers)
        )
    finally:
        await producer.stop()
    return sent.partition, sent.offset, value


async def fences(client: Client) -> int:
    return sum(b'"fence"' in record.value for record in await client.records("tokens"))


async def test_a_prompt_of_control_characters_is_six_times_as_long_in_its_turn_and_fits(client: Client) -> None:
    user = client.user()
    prompt = "\x01" * (client.settings.max_prompt_bytes - 10)
    await client.asked(user, prompt, max_tokens=5)
    turns = await client.turns_of(user, 1)
    assert turns[0].prompt == prompt


async def test_hostile_records_have_one_dead_letter_each_and_stall_nobody(client: Client) -> None:
    await client.asked(client.user(), max_tokens=2)
    before = await fences(client)
    users = [client.user() for _ in HOSTILE]
    places = {}
    for user, hostile in zip(users, HOSTILE, strict=True):
        partition, offset, value = await send(client, user, hostile, f"bad-{user}")
        places[partition, offset] = (hostile, user, value)
        end = (await client.asked(user, max_tokens=2)).end
        assert end is not None
        assert end.type is EventType.DONE

    for (partition, offset), (hostile, user, value) in places.items():
        letter = await client.dead_letter("requests", partition, offset)
        headers = dict(letter.headers)
        assert headers["error-code"] == b"invalid_request", hostile.name
        assert letter.key == user.encode()
        assert value.startswith(letter.value)
        if len(letter.value) < len(value):
            assert int(headers["value-bytes"]) == len(value)
            assert headers["value-sha256"].decode() == hashlib.sha256(value).hexdigest()
        if hostile.is_reported:
            await client.answer(user, f"bad-{user}")
        else:
            assert (user, f"bad-{user}") not in client.reader.rule.answers, hostile.name
    sources = [
        (int(dict(letter.headers)["source-partition"]), int(dict(letter.headers)["source-offset"]))
        for letter in await client.records("dead-letters")
    ]
    assert {place: sources.count(place) for place in places} == dict.fromkeys(places, 1)
    assert await fences(client) == before, "a bad record is no reason to take a partition over"


async def test_garbage_that_no_dead_letter_can_hold_does_not_stall_controls(client: Client) -> None:
    user = client.user()
    value = b"x" * (MAX_RECORD_BYTES - 200)
    partition, offset = await client.send("controls", value, user)
    letter = await client.dead_letter("controls", partition, offset)
    assert int(dict(letter.headers)["value-bytes"]) == len(value)
    await client.asked(user, max_tokens=2)


async def test_a_record_of_a_wrong_partitioner_is_refused_with_the_remedy(client: Client) -> None:
    user = client.user()
    wrong = (client.partition(user) + 1) % client.settings.partitions
    request = {"request_id": f"r-{user}", "user_id": user, "prompt": "hello", "max_tokens": 2}
    partition, offset = await client.send("requests", request, user, partition=wrong)
    assert partition == wrong
    answer = await client.answer(user, request["request_id"])
    assert answer.end is not None
    assert answer.end.error is not None
    assert answer.end.error.code == "invalid_request"
    assert "partitioner=murmur2_random" in answer.end.error.message
    letter = await client.dead_letter("requests", partition, offset)
    assert b"murmur2" in dict(letter.headers)["error-message"]
