"""Reading of fetched batches, for all consumers of the process: what cannot be decoded is a record, too.

aiokafka raises what it meets in a batch, and fetches that batch again for ever. Any producer could end every consumer
of a topic in this way. Here, records that cannot be decoded are delivered as `UnreadableRecord`, at their offsets and
with their raw bytes, among those that can. The consumer goes on behind them, and decides what becomes of them.

    checksum, cut off                  fetched again `_TRIES` times, since the bytes may have been damaged on their way
    codec, size, count, message format one unreadable record for all offsets of the batch
    one record of a batch              one unreadable record at its offset
    offsets that cannot be counted     one unreadable record at the last offset that the batch names; if that is
                                       implausible, at the offset before the next batch, or else at the next offset

Batches are expanded within `MOST_BATCH_BYTES`; a poll expands about as much for each partition and leaves the rest to
the next fetch. They have `MOST_RECORDS` records at most, since each has an outcome of its own, and what stands behind
them waits for all of these.

Replaces two names of aiokafka, whose version is pinned (app/faust/pins.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.structs import ConsumerRecord, TopicPartition

from app.kafka.batch import (
    HEADER_BYTES,
    MAGIC,
    MOST_RECORDS,
    CrowdedError,
    DamagedBatchError,
    ReadRecords,
    RecordBatch,
    first_offset,
    last_offset,
    records_of,
)
from app.kafka.codecs import Codec, CodecError, expand

log = logging.getLogger(__name__)

MOST_BATCH_BYTES = 16 << 20
_TRIES = 2
_MOST_TRIED = 1000
_MOST_WARNED = 1000
_LENGTH_AT, _FRAME_BYTES, _MAGIC_AT = 8, 12, 16
_LEAST_BYTES = 26
"""Of an entry in message format 0, the smallest one."""
_LEGACY_ATTRIBUTES_AT = 17
_MOST_DAMAGED = MOST_BATCH_BYTES // 7
"""Offsets of a damaged batch: a record has at least seven bytes."""


@dataclass
class UnreadableRecord(ConsumerRecord[bytes, bytes]):
    """A record that cannot be decoded: `cause` says why, `value` has its raw bytes."""

    cause: str


def cause_of(record: Any) -> str:
    """Why the record of a consumer is unreadable; empty if it is not."""
    return record.cause if isinstance(record, UnreadableRecord) else ""


def check_readable(records: Iterable[Any]) -> None:
    """For a log of which every record counts: raises aiokafka's `CorruptRecordException` if one is unreadable."""
    for record in records:
        if cause := cause_of(record):
            raise CorruptRecordException(f"{record.topic}[{record.partition}] offset {record.offset}: {cause}")


class _DamagedError(Exception):
    """The entry may have been damaged on its way."""


class FetchedBatches:
    """What a fetch returned for one partition. Stands in for aiokafka's `MemoryRecords`.

    `entry` is the entry that was handed out last, as it was fetched, and `last` its last offset; `readable` is the same
    without compression, or None if it cannot be read.
    """

    def __init__(self, fetched: bytes | None) -> None:
        self._fetched = fetched or b""
        self._at = 0
        self._expanded = 0
        self.entry = b""
        self.readable: RecordBatch | None = None
        self.last = -1

    def size_in_bytes(self) -> int:
        return len(self._fetched)

    def has_next(self) -> bool:
        """An entry that is cut off is the last one, and left to the next fetch unless it is the first one."""
        if self._expanded >= MOST_BATCH_BYTES:
            return False
        left = len(self._fetched) - self._at
        return left > 0 if self._at == 0 else left >= _FRAME_BYTES and self._end() <= len(self._fetched)

    def next_offset(self) -> int:
        """Where the next entry begins, -1 if there is none."""
        return first_offset(self._fetched[self._at : self._at + _FRAME_BYTES])

    def next_batch(self) -> Any:
        """The next batch for aiokafka. The entry counts as handed out, also if this raises because of it."""
        begin, end = self._at, self._end()
        self._at = max(min(end, len(self._fetched)), begin + 1) if end > begin else len(self._fetched)
        self.entry, self.readable = self._fetched[begin : self._at], None
        if end > len(self._fetched) or len(self.entry) < _LEAST_BYTES:
            raise _DamagedError("the batch is cut off")
        if self.entry[_MAGIC_AT] < MAGIC:
            return self._legacy()
        batch = RecordBatch.of(self.entry)
        whole = DefaultRecordBatch(self.entry)
        if not whole.validate_crc():
            raise _DamagedError("the checksum of the batch is wrong")
        self.last = batch.last_offset
        if batch.count > MOST_RECORDS:
            return _Closed(whole, CrowdedError())
        if batch.codec == Codec.NONE:
            self.readable = batch
            return self._checked(whole)
        try:
            records = expand(batch.codec, self.entry[HEADER_BYTES:], MOST_BATCH_BYTES)
        except CodecError as error:
            return _Closed(whole, error)
        self._expanded += len(records)
        expanded = batch.expanded(records)
        self.readable = RecordBatch.of(expanded)
        return self._checked(DefaultRecordBatch(expanded))

    def _checked(self, batch: Any) -> Any:
        """Aiokafka goes on behind the last offset that a batch names, and so past the next one if that is false."""
        following = self.next_offset()
        if 0 <= following <= self.last:
            raise DamagedBatchError(f"its last offset {self.last} lies in the next batch, which begins at {following}")
        return batch

    def _end(self) -> int:
        length = int.from_bytes(self._fetched[self._at + _LENGTH_AT : self._at + _FRAME_BYTES], "big", signed=True)
        return self._at + _FRAME_BYTES + length

    def _legacy(self) -> Any:
        """Message formats 0 and 1, which no broker writes since Kafka 3.0. There is no bound for their codecs."""
        magic = self.entry[_MAGIC_AT]
        if self.entry[_LEGACY_ATTRIBUTES_AT] & 7:
            raise DamagedBatchError(f"compressed messages of format {magic} are not supported")
        self.last = first_offset(self.entry)
        batch = LegacyRecordBatch(self.entry, magic)
        if not batch.validate_crc():
            raise _DamagedError("the checksum of the message is wrong")
        return batch


class _Closed:
    """A batch that is not read. If it belongs to an aborted transaction, no consumer asks for its records."""

    def __init__(self, batch: Any, error: CodecError | CrowdedError) -> None:
        self._batch = batch
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        raise self._error

    def __next__(self) -> Any:
        raise self._error


class ReadableRecords(fetcher.PartitionRecords):
    """The records of a fetch of one partition, with unreadable ones among them. Stands in for `PartitionRecords`."""

    _tried: dict[tuple[TopicPartition, int], int] = {}  # noqa: RUF012 - of all consumers
    _warned: dict[tuple[TopicPartition, int, int], None] = {}  # noqa: RUF012 - of all consumers; the oldest first

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._check_crcs = False  # `FetchedBatches` does
        self.next_fetch_offset: int

    def _unpack_records(self) -> Iterator[ConsumerRecord[bytes, bytes]]:
        while True:
            try:
                yield from super()._unpack_records()
                break
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever decoding raises is about these bytes
                if isinstance(error, _DamagedError) and self._is_tried_again():
                    return
                yield from self._rescued(error)

    def _consumer_record(self, tp: TopicPartition, record: Any) -> ConsumerRecord[bytes, bytes]:
        """Brokers do not check the offsets within a batch; a false one would move the position out of the log."""
        if record.offset > self._records.last:
            raise DamagedBatchError(f"the offset {record.offset} is not within the batch")
        return super()._consumer_record(tp, record)

    def _is_tried_again(self) -> bool:
        """Whether to fetch from here again; the position stays."""
        position = (self._tp, self.next_fetch_offset)
        tries = self._tried.get(position, 0) + 1
        if tries > _TRIES:
            self._tried.pop(position, None)
            return False
        if len(self._tried) > _MOST_TRIED:
            self._tried.clear()
        self._tried[position] = tries
        return True

    def _is_first_warning(self, read: ReadRecords) -> bool:
        """A gateway reads a partition again for an answer that it has not kept, and the record has warned then."""
        position = (self._tp, read.offset, read.timestamp)
        if position in self._warned:
            return False
        if len(self._warned) >= _MOST_WARNED:
            del self._warned[next(iter(self._warned))]
        self._warned[position] = None
        return True

    def _rescued(self, error: Exception) -> Iterator[ConsumerRecord[bytes, bytes]]:
        """The rest of the entry that raised this."""
        last = self._last_offset(is_damaged=isinstance(error, _DamagedError))
        for read in self._reads(error, last):
            if read.offset > last:  # what the batch names may be false
                cause = read.cause or f"its offset {read.offset} is not within the batch"
                read = replace(read, offset=last, cause=cause)  # noqa: PLW2901
            if read.offset < self.next_fetch_offset:
                continue
            self.next_fetch_offset = read.offset + 1
            if read.cause and self._is_first_warning(read):
                log.warning("%s[%s] offset %s cannot be decoded: %s", *self._tp, read.offset, read.cause)
            yield self._delivered(read)
        self.next_fetch_offset = max(self.next_fetch_offset, last + 1)

    def _reads(self, error: Exception, last: int) -> Iterator[ReadRecords]:
        batch = self._records.readable
        if batch is not None and not batch.is_control:
            yield from records_of(batch)
            return
        cause = str(error) or type(error).__name__
        if not isinstance(error, (_DamagedError, CodecError, CrowdedError, DamagedBatchError)):
            cause = f"{type(error).__name__}: {cause}"
        yield ReadRecords(
            self.next_fetch_offset, last, _time_in(self._records.entry), None, self._records.entry, cause=cause
        )

    def _last_offset(self, *, is_damaged: bool) -> int:
        """The last offset of the entry, or the smallest step that is safe if it does not name a plausible one."""
        first, following = self.next_fetch_offset, self._records.next_offset()
        named = last_offset(self._records.entry)
        if following >= first:
            return named if first <= named < following else following - 1
        if self._records.readable is not None:  # perhaps all its records were delivered
            return max(named, first - 1)
        return named if first <= named and (named <= first + _MOST_DAMAGED or not is_damaged) else first

    def _delivered(self, read: ReadRecords) -> ConsumerRecord[bytes, bytes]:
        sizes = [-1 if one is None else len(one) for one in (read.key, read.value)]
        fields: Any = (*self._tp, read.offset, read.timestamp, 0, read.key, read.value, None, *sizes, read.headers)
        if not read.cause:
            return ConsumerRecord(*fields)
        offsets = f"offsets {read.first} to {read.offset}: " if read.first < read.offset else ""
        return UnreadableRecord(*fields, cause=f"it cannot be decoded: {offsets}{read.cause}")


def _time_in(entry: bytes) -> int:
    try:
        return RecordBatch.of(entry).max_timestamp
    except DamagedBatchError:
        return 0


def install() -> None:
    fetcher.MemoryRecords = FetchedBatches
    fetcher.PartitionRecords = ReadableRecords
