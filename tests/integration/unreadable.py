"""Batches and records that no client can decode, and how to get them into a real log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

import cramjam
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NotLeaderForPartitionError
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from app.kafka.codecs import Codec
from app.settings import Settings
from tests.unit.kafka.batches import batch, renamed, with_codec

CROWD = 100_000


class Unreadable(NamedTuple):
    """`raw` makes the batch of a request. Its last record is unreadable; the ones before it are answered."""

    name: str
    raw: Callable[[bytes], bytes]
    cause: bytes
    is_reported: bool = False


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def named(value: bytes) -> bytes:
    return renamed(batch([value], headers=[("ZZ", b"1")], timestamp=now_ms()), b"\x04ZZ", b"\x04\xff\xfe")


def compressed_name(value: bytes) -> bytes:
    raw = named(value)
    return with_codec(raw, Codec.ZSTD, bytes(cramjam.zstd.compress(raw[61:])))


def bomb(_value: bytes) -> bytes:
    plain = batch([b"\0" * (200 << 20)], timestamp=now_ms())
    return with_codec(plain, Codec.GZIP, bytes(cramjam.gzip.compress(plain[61:])))


def zstd_bomb(_value: bytes) -> bytes:
    plain = batch([b"\0" * (200 << 20)], timestamp=now_ms())
    return with_codec(plain, Codec.ZSTD, bytes(cramjam.zstd.compress(plain[61:])))


def crowd() -> bytes:
    """100,000 records without key or value, in some 60 KB."""
    builder = DefaultRecordBatchBuilder(2, Codec.ZSTD, 0, -1, -1, -1, 1 << 28)
    for offset in range(CROWD):
        builder.append(offset, now_ms(), None, None, [])
    return bytes(builder.build())


UNREADABLE = [
    Unreadable("header name", named, b"not UTF-8", is_reported=True),
    Unreadable("header name in zstd", compressed_name, b"not UTF-8", is_reported=True),
    Unreadable("gzip bomb", bomb, b"expands to more"),
    Unreadable("zstd bomb", zstd_bomb, b"expands to more"),
]


async def produce(settings: Settings, topic: str, partition: int, raw: bytes) -> int:
    """Write the batch as it is; returns its offset. Raises what the broker refuses."""
    sender = AIOKafkaClient(**settings.cluster.options())
    await sender.bootstrap()
    try:
        name = settings.topic(topic)
        await sender.set_topics([name])
        leader = next(iter(sender.cluster.brokers())).nodeId
        while True:
            response = await sender.send(leader, ProduceRequest(None, -1, 30_000, [(name, [(partition, raw)])]))
            (_, [(_, code, offset, *_)]) = response.topics[0]
            if code != NotLeaderForPartitionError.errno:  # of a topic that has just been created
                break
            await asyncio.sleep(0.05)
        assert code == 0, code
        return int(offset)
    finally:
        await sender.close()
