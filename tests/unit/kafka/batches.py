"""Batches as producers write them, and as they must not: made by aiokafka's own builder and damaged afterwards."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

NOW_MS = 1_700_000_000_000
Header = tuple[str, bytes | None]


def batch(
    values: Iterable[bytes],
    *,
    base: int = 0,
    codec: int = 0,
    headers: Sequence[Header] = (),
    timestamp: int = NOW_MS,
    transactional: bool = False,
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=int(transactional),
        producer_id=7 if transactional else -1,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        batch_size=1 << 28,
    )
    for offset, value in enumerate(values):
        builder.append(offset, timestamp, b"nina", value, headers=list(headers))
    return at_offset(bytes(builder.build()), base)


def at_offset(raw: bytes, base: int) -> bytes:
    return struct.pack(">q", base) + raw[8:]


def sealed(raw: bytes) -> bytes:
    """With the length and the checksum that belong to its bytes."""
    raw = raw[:8] + struct.pack(">i", len(raw) - 12) + raw[12:]
    return raw[:17] + struct.pack(">I", calc_crc32c(raw[21:])) + raw[21:]


def with_codec(raw: bytes, codec: int, content: bytes) -> bytes:
    """The batch with this content in place of its records."""
    (attributes,) = struct.unpack_from(">h", raw, 21)
    return sealed(raw[:21] + struct.pack(">h", attributes & ~7 | codec) + raw[23:61] + content)


def renamed(raw: bytes, old: bytes, new: bytes) -> bytes:
    """Other bytes of the same length in the records."""
    assert len(old) == len(new)
    assert raw.count(old) >= 1
    return sealed(raw.replace(old, new, 1))


def with_last_offset_delta(raw: bytes, delta: int) -> bytes:
    return sealed(raw[:23] + struct.pack(">i", delta) + raw[27:])
