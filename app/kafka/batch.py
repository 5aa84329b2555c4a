"""A record batch as it lies in the log (message format 2), and its records one by one.

aiokafka reads a batch as a whole: one record that it cannot decode hides those behind it. Here each record is read by
itself, within the length that stands before it, so that one bad record is one bad record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from app.kafka.codecs import Codec

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
MAGIC = 2
_MAGIC_AT = 16
_FRAME = struct.Struct(">qi")
_LOG_APPEND_TIME = 8
_CODEC_MASK = 7
_CONTROL = 32
MOST_RECORDS = 10_000
"""Of one batch. Each record has its own outcome, and compression makes 100,000 of 59 KB."""
_MOST_VARINT = 10
_MOST_HEADERS = 1 << 16


class DamagedBatchError(Exception):
    """The bytes are not what the format says."""


class CrowdedError(Exception):
    """The batch has more records than one may have."""

    def __init__(self) -> None:
        super().__init__(f"its batch has more than {MOST_RECORDS} records; let the producer write smaller batches")


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """The head of a batch and the bytes of its records, which are compressed if it has a codec."""

    raw: bytes
    base_offset: int
    last_offset: int
    attributes: int
    first_timestamp: int
    max_timestamp: int
    count: int
    """Of its records, as it claims."""

    @classmethod
    def of(cls, raw: bytes) -> RecordBatch:
        """Raises `DamagedBatchError`."""
        if len(raw) < HEADER_BYTES:
            raise DamagedBatchError(f"the batch has {len(raw)} bytes, fewer than its head")
        if raw[_MAGIC_AT] != MAGIC:
            raise DamagedBatchError(f"the message format {raw[_MAGIC_AT]} is not supported")
        base, _, _, _, _, attributes, delta, first, newest, *_, count = _HEADER.unpack_from(raw)
        return cls(raw, base, base + delta, attributes, first, newest, count)

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    def expanded(self, records: memoryview) -> bytes:
        """The same batch with these records, which are not compressed. Its checksum is not valid."""
        base, _, *rest = _HEADER.unpack_from(self.raw)
        rest[3] = self.attributes & ~_CODEC_MASK | Codec.NONE
        length = HEADER_BYTES - _FRAME.size + len(records)
        return b"".join((_HEADER.pack(base, length, *rest), records))


def first_offset(raw: bytes) -> int:
    """The offset of an entry of the log, whatever its format; -1 if it has none."""
    return int(_FRAME.unpack_from(raw)[0]) if len(raw) >= _FRAME.size else -1


def last_offset(raw: bytes) -> int:
    """The last offset of an entry, -1 if its format is unknown."""
    if len(raw) > _MAGIC_AT and raw[_MAGIC_AT] < MAGIC:
        return first_offset(raw)  # of the last message of a compressed set
    try:
        return RecordBatch.of(raw).last_offset
    except DamagedBatchError:
        return -1


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """A record of the batch, or the offsets up to `offset` if their records cannot be separated.

    `cause` is empty if the record is as it should be. What could be read of another one is there; its `value` is the
    whole of its bytes if it has no readable value.
    """

    first: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    cause: str = ""


def records_of(batch: RecordBatch) -> Iterator[ReadRecords]:
    """The records of a batch that is not compressed, in offset order. What cannot be separated, or is too much, is
    one at the end.
    """
    content, at, expected, left = batch.raw, HEADER_BYTES, batch.base_offset, MOST_RECORDS
    while at < len(content) and expected <= batch.last_offset:
        cursor = _Cursor(content, at, len(content))
        try:
            if not left:
                raise CrowdedError
            begin, end = cursor.span(cursor.varint())
        except (DamagedBatchError, CrowdedError) as error:
            yield ReadRecords(expected, batch.last_offset, batch.max_timestamp, None, content[at:], cause=str(error))
            return
        read = _record(batch, _Cursor(content, begin, end), expected)
        yield read
        expected, at, left = read.offset + 1, end, left - 1


def _record(batch: RecordBatch, cursor: _Cursor, expected: int) -> ReadRecords:
    whole = cursor.rest()
    offset, timestamp, cause = expected, batch.max_timestamp, ""
    key: bytes | None = None
    value: bytes | None = whole
    headers: list[tuple[str, bytes | None]] = []
    try:
        cursor.skip(1)  # attributes, which have no meaning yet
        delta = cursor.varint()
        if not batch.attributes & _LOG_APPEND_TIME:
            timestamp = batch.first_timestamp + delta
        offset = batch.base_offset + cursor.varint()
        if not expected <= offset <= batch.last_offset:
            wrong, offset = offset, expected
            raise DamagedBatchError(f"its offset {wrong} is not within the batch")
        key = cursor.nullable()
        value = cursor.nullable()
        count = cursor.varint()
        if not 0 <= count <= _MOST_HEADERS:
            raise DamagedBatchError(f"it has {count} headers")
        for _ in range(count):
            name = cursor.nullable() or b""
            text = name.decode(errors="backslashreplace")
            if text.encode() != name:
                cause = cause or f"the header name {text[:64]!r} is not UTF-8"
            headers.append((text, cursor.nullable()))
        if cursor.rest():
            raise DamagedBatchError(f"{len(cursor.rest())} bytes stand behind its last header")
    except DamagedBatchError as error:
        cause = f"the record is malformed: {error}"
    return ReadRecords(offset, offset, timestamp, key, value, tuple(headers), cause)


class _Cursor:
    """Reads from `at` to `end`; raises `DamagedBatchError` instead of reading beyond."""

    def __init__(self, content: bytes, at: int, end: int) -> None:
        self._content = content
        self._at = at
        self._end = end

    def span(self, length: int) -> tuple[int, int]:
        """Begin and end of the next `length` bytes, which are skipped."""
        begin = self._at
        if length < 0 or begin + length > self._end:
            raise DamagedBatchError(f"{length} bytes are announced, and {self._end - begin} are there")
        self._at += length
        return begin, self._at

    def skip(self, length: int) -> None:
        self.span(length)

    def rest(self) -> bytes:
        return self._content[self._at : self._end]

    def nullable(self) -> bytes | None:
        """Bytes behind their length; a negative length is null."""
        length = self.varint()
        if length < 0:
            return None
        begin, end = self.span(length)
        return self._content[begin:end]

    def varint(self) -> int:
        """A number in zigzag encoding."""
        number = 0
        for position in range(_MOST_VARINT):
            if self._at >= self._end:
                break
            byte = self._content[self._at]
            self._at += 1
            number |= (byte & 0x7F) << (7 * position)
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise DamagedBatchError("a number is cut off")
