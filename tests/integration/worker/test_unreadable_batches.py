"""Batches that no client can decode, in a real log: each has its dead letter, and what stands behind it is answered."""

from __future__ import annotations

import json

import pytest
from aiokafka import AIOKafkaProducer

from app.wire.event import EventType
from tests.integration.unreadable import CROWD, UNREADABLE, bomb, crowd, named, produce
from tests.integration.worker.client import Client
from tests.integration.worker.test_tools_over_kafka import KAFKA, calls_of, expected, result
from tests.unit.kafka.batches import batch, renamed


async def fences(client: Client) -> int:
    return sum(b'"fence"' in record.value for record in await client.records("tokens"))


def request_of(user: str, request_id: str) -> bytes:
    return json.dumps({"request_id": request_id, "user_id": user, "prompt": "hello", "max_tokens": 2}).encode()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_requests_in_every_codec_are_answered(client: Client, codec: str) -> None:
    user = client.user()
    producer = AIOKafkaProducer(**client.settings.cluster.options(), compression_type=codec, linger_ms=50)
    await producer.start()
    try:
        ids = [f"{codec}-{number}" for number in range(5)]
        for request_id in ids:
            await producer.send(client.settings.topic("requests"), request_of(user, request_id), key=user.encode())
        await producer.flush()
    finally:
        await producer.stop()
    for request_id in ids:
        end = (await client.answer(user, request_id)).end
        assert end is not None
        assert end.type is EventType.DONE


async def test_what_cannot_be_decoded_has_one_dead_letter_and_stalls_nobody(client: Client) -> None:
    await client.asked("nina", max_tokens=2)
    before, places = await fences(client), {}
    partition = client.partition("nina")  # the key of the batches
    for unreadable in UNREADABLE:
        request_id = f"bad-{unreadable.name.replace(' ', '-')}"
        raw = unreadable.raw(request_of("nina", request_id))
        offset = await produce(client.settings, "requests", partition, raw)
        places[offset] = (unreadable, request_id, raw)
        end = (await client.asked("nina", max_tokens=2)).end
        assert end is not None
        assert end.type is EventType.DONE
    for offset, (unreadable, request_id, raw) in places.items():
        letter = await client.dead_letter("requests", partition, offset)
        headers = dict(letter.headers)
        assert unreadable.cause in headers["error-message"]
        assert letter.value == (request_of("nina", request_id) if unreadable.is_reported else raw_of(raw, offset))
        if unreadable.is_reported:
            await client.answer("nina", request_id)
        else:
            assert ("nina", request_id) not in client.reader.rule.answers
    letters = [dict(letter.headers)["source-offset"] for letter in await client.records("dead-letters")]
    assert len(letters) == len(set(letters))
    assert await fences(client) == before


def raw_of(raw: bytes, offset: int) -> bytes:
    """As the broker stores it: with its offset and the epoch of the leader."""
    return offset.to_bytes(8, "big") + raw[8:12] + b"\0\0\0\0" + raw[16:]


async def test_a_crowded_batch_has_one_dead_letter_and_stalls_nobody(client: Client) -> None:
    await client.asked("nina", max_tokens=2)
    before, partition, raw = len(await client.records("dead-letters")), client.partition("nina"), crowd()
    assert len(raw) < 1 << 17
    offset = await produce(client.settings, "requests", partition, raw)
    end = (await client.asked("nina", max_tokens=2)).end
    assert end is not None
    assert end.type is EventType.DONE
    letter = await client.dead_letter("requests", partition, offset + CROWD - 1)
    assert b"more than 10000 records" in dict(letter.headers)["error-message"]
    assert letter.value == raw_of(raw, offset)
    assert len(await client.records("dead-letters")) == before + 1


async def test_a_healthy_record_of_the_same_batch_is_answered(client: Client) -> None:
    values = [request_of("nina", f"same-batch-{number}") for number in range(3)]
    raw = renamed(batch(values, headers=[("ZZ", b"1")]), b"\x04ZZ", b"\x04\xff\xfe")
    offset = await produce(client.settings, "requests", client.partition("nina"), raw)
    await client.dead_letter("requests", client.partition("nina"), offset)
    for number in (1, 2):
        end = (await client.answer("nina", f"same-batch-{number}")).end
        assert end is not None
        assert end.type is EventType.DONE


async def test_controls_go_on_as_well(client: Client) -> None:
    partition = client.partition("nina")
    offsets = [await produce(client.settings, "controls", partition, make(b"{}")) for make in (named, bomb)]
    for offset in offsets:
        await client.dead_letter("controls", partition, offset)
    await client.asked("nina", max_tokens=2)


async def test_an_answer_goes_on_with_the_result_that_can_be_decoded(client: Client) -> None:
    user = client.user()
    request_id = await client.ask(user, "hello", max_tokens=2, **KAFKA)
    (call,) = await calls_of(client, user)
    about = {"tool_call_id": call.tool_call_id, "request_id": request_id, "user_id": user}
    forged = json.dumps({**about, "content": "forged"}).encode()
    partition = client.partition(user)
    offsets = [await produce(client.settings, "tool-results", partition, make(forged)) for make in (named, bomb)]
    for offset in offsets:
        await client.dead_letter("tool-results", partition, offset)
    await result(client, call, "packed")
    _, second = await calls_of(client, user, 2)
    await result(client, second, "sent")
    assert (await client.answer(user, request_id)).text == expected("hello", ["packed", "sent"], [1, 1])[0]


@pytest.mark.parametrize("timestamp", [-(10**15), -1, 0, 10**11])
async def test_a_time_before_the_year_2000_is_no_reason_to_refuse(client: Client, timestamp: int) -> None:
    request_id = f"old{timestamp}"
    raw = batch([request_of("nina", request_id)], timestamp=timestamp)
    await produce(client.settings, "requests", client.partition("nina"), raw)
    end = (await client.answer("nina", request_id)).end
    assert end is not None
    assert end.type is EventType.DONE
