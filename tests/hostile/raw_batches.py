"""Record batches as no producer's library writes them, and a way to hand them to a broker as they are."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from app.kafka.cluster import Cluster

_HEAD = 61  # bytes before the records of a batch
_LENGTH, _CRC, _ATTRIBUTES, _LAST_OFFSET, _FIRST_TIME, _MAX_TIME, _COUNT = 8, 17, 21, 23, 27, 35, 57
_GZIP, _ZSTD = 1, 4
_NAME = b"NAME-OF-HEADER"
_TIMEOUT_MS = 10_000
_NOW = 1_700_000_000_000


def batch(key: bytes | None, value: bytes | None, *, header: bytes | None = None, timestamp: int = _NOW) -> bytes:
    """A batch of one record; `header` is the name of its only header, in any bytes."""
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 30,
    )  # fmt: skip
    name = None if header is None else _NAME[: len(header)].decode()
    builder.append(0, timestamp, key, value, headers=[] if name is None else [(name, b"1")])
    whole = bytearray(builder.build())
    if header is not None and name is not None:
        at = whole.rindex(name.encode())
        whole[at : at + len(header)] = header
    return sealed(whole)


def sealed(whole: bytearray) -> bytes:
    """With the length and the checksum of what it holds now."""
    struct.pack_into(">i", whole, _LENGTH, len(whole) - _LENGTH - 4)
    struct.pack_into(">I", whole, _CRC, calc_crc32c(bytes(whole[_ATTRIBUTES:])))
    return bytes(whole)


def bomb(key: bytes, size: int) -> bytes:
    """A gzip batch whose only record has a value of so many zeros: a thousandth of that on the wire."""
    body = b"\0" + _varint(0) + _varint(0) + _varint(len(key)) + key + _varint(size) + bytes(size) + _varint(0)
    whole = bytearray(batch(key, b"x")[:_HEAD]) + gzip.compress(_varint(len(body)) + body)
    struct.pack_into(">h", whole, _ATTRIBUTES, _GZIP)
    return sealed(whole)


def crowd(count: int) -> bytes:
    """A zstd batch of so many records without key or value, each of which would have an outcome."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=_ZSTD,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset in range(count):
        builder.append(offset, _NOW, None, None, headers=[])
    return bytes(builder.build())


def with_attributes(whole: bytes, attributes: int) -> bytes:
    """Bits 0 to 2 are the codec, 3 the kind of timestamp, 4 transactional, 5 control."""
    changed = bytearray(whole)
    struct.pack_into(">h", changed, _ATTRIBUTES, attributes)
    return sealed(changed)


def with_count(whole: bytes, count: int) -> bytes:
    """A batch that claims to hold so many records."""
    changed = bytearray(whole)
    struct.pack_into(">i", changed, _LAST_OFFSET, count - 1)
    struct.pack_into(">i", changed, _COUNT, count)
    return sealed(changed)


def _varint(number: int) -> bytes:
    zigzag, out = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes((*out, zigzag))


class RawProducer:
    """Sends batches as they are."""

    def __init__(self, cluster: Cluster) -> None:
        options: dict[str, Any] = cluster.options()
        self._client = AIOKafkaClient(**options)

    async def __aenter__(self) -> Self:
        await self._client.bootstrap()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._client.close()

    async def send(self, at: TopicPartition, raw: bytes) -> int:
        """The offset of its first record; raises the `KafkaError` with which the broker refuses the batch."""
        await self._client.set_topics((*self._client.cluster.topics(), at.topic))
        leader = self._client.cluster.leader_for_partition(at)
        topics: Sequence[tuple[str, list[tuple[int, bytes]]]] = [(at.topic, [(at.partition, raw)])]
        reply = await self._client.send(leader, ProduceRequest(None, -1, _TIMEOUT_MS, list(topics)))
        ((_, ((_, code, offset, *_rest),)),) = reply.topics
        if code:
            error: type[KafkaError] = for_code(code)
            raise error
        return int(offset)
