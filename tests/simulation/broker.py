"""Kafka as delivery knows it: logs, transactions that fence by epoch, and committed offsets.

Records of an open transaction hide what stands behind them from read_committed readers; its end leaves a marker in each
partition, which takes an offset. Offsets sent with a transaction are committed with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from aiokafka import TopicPartition
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced
from aiokafka.structs import OffsetAndMetadata, RecordMetadata

from app.kafka.reading import UnreadableRecord
from tests.simulation.world import World

TRANSACTION_TIMEOUT_S = 30.0
LOG_APPEND_TIME = frozenset({"tokens", "controls"})


@dataclass(slots=True, eq=False)
class Transaction:
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    """In the order of their first records: a set's order is another one in each process."""
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    committed: bool | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as a consumer gets it; markers are not delivered."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    transaction: Transaction | None = None
    marker: bool = False
    cause: str = ""
    """Why consumers cannot decode it."""

    @property
    def consumed(self) -> Entry | UnreadableRecord:
        """As consumers of app/kafka/reading.py get it."""
        if not self.cause:
            return self
        at = (self.topic, self.partition, self.offset, self.timestamp, 0)
        return UnreadableRecord(*at, self.key, self.value, None, -1, -1, tuple(self.headers), cause=self.cause)

    @property
    def visible(self) -> bool:
        return not self.marker and (self.transaction is None or self.transaction.committed is True)


@dataclass(slots=True)
class Log:
    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    end: int = 0
    expired: list[Entry] = field(default_factory=list)
    """What retention has deleted: no consumer is handed it, and the verdict still counts it."""
    open: dict[int, Transaction] = field(default_factory=dict)
    readers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def stable_end(self) -> int:
        return min(self.open) if self.open else self.end

    def read(self, position: int, most: int) -> tuple[list[Entry], int]:
        """Committed records from `position` on, and the position after what was looked at."""
        found: list[Entry] = []
        end = self.stable_end
        if position >= end:  # as most polls find it
            return found, position
        for entry in self.entries[bisect_left(self.entries, position, key=lambda one: one.offset) :]:
            if entry.offset >= end:
                break
            if entry.visible:
                found.append(entry)
                if len(found) == most:
                    return found, entry.offset + 1
        return found, end

    def read_uncommitted(self, position: int, most: int) -> tuple[list[Entry], int]:
        """Records from `position` on, whatever becomes of their transactions."""
        if position >= self.end:
            return [], position
        first = bisect_left(self.entries, position, key=lambda one: one.offset)
        found = list(islice((entry for entry in self.entries[first:] if not entry.marker), most))
        return found, found[-1].offset + 1 if len(found) == most else max(position, self.end)

    def truncate(self, end: int) -> list[Entry]:
        """Lose the tail from the offset `end` on, as an unclean election does; returns what is lost."""
        lost = [entry for entry in self.entries if entry.offset >= end]
        self.entries = [entry for entry in self.entries if entry.offset < end]
        self.open = {offset: one for offset, one in self.open.items() if offset < end}
        self.end = min(self.end, end)
        return lost

    def retain(self, start: int) -> None:
        """Delete what is older than the offset `start`."""
        self.start = max(self.start, min(start, self.end))
        self.expired += [entry for entry in self.entries if entry.offset < self.start]
        self.entries = [entry for entry in self.entries if entry.offset >= self.start]


@dataclass(slots=True)
class Writer:
    """A transactional id's state."""

    epoch: int = 0
    transaction: Transaction | None = None


class Broker:
    def __init__(self, world: World) -> None:
        self.world = world
        self.logs: defaultdict[TopicPartition, Log] = defaultdict(Log)
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.foreign: dict[str, int] = {}
        """How many partitions the topics of others have."""
        self.writers: dict[str, Writer] = {}
        self.up = True
        self.elections = 0
        """Unclean ones: an idempotent producer's sequence does not match the log any more after one."""
        self.trouble = 0.0
        """How likely a call is to fail, before or after it has taken effect."""
        self.late: dict[str, float] = {}
        """Most seconds by which a topic's records reach workers late."""
        self.held: dict[str, float] = {}
        """The time before which a topic's records reach no worker."""

    def log(self, at: TopicPartition) -> Log:
        return self.logs[at]

    def append(
        self,
        at: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        transaction: Transaction | None = None,
        timestamp: float | None = None,
        *,
        marker: bool = False,
        cause: str = "",
    ) -> int:
        log = self.log(at)
        offset, log.end = log.end, log.end + 1
        if timestamp is None or at.topic in LOG_APPEND_TIME:
            timestamp = self.world.now
        written = int(timestamp * 1000)
        entry = Entry(at.topic, at.partition, offset, written, key, value, headers, transaction, marker, cause)
        log.entries.append(entry)
        if transaction is not None and not marker and at not in transaction.partitions:
            transaction.partitions[at] = None
            log.open[offset] = transaction
        for reader in log.readers:
            reader()
        return offset

    def receipt(self, at: TopicPartition, offset: int) -> RecordMetadata:
        """What a producer learns of a record that was appended just now."""
        by_broker = at.topic in LOG_APPEND_TIME
        timestamp = int(self.world.now * 1000) if by_broker else -1
        return RecordMetadata(at.topic, at.partition, at, offset, timestamp, int(by_broker), -1)

    # What transactional producers ask for.

    def init_producer(self, name: str) -> int:
        writer = self.writers.setdefault(name, Writer())
        self._end(writer, committed=False)
        writer.epoch += 1
        return writer.epoch

    def transaction_of(self, name: str, epoch: int) -> Transaction:
        writer = self._writer(name, epoch)
        if writer.transaction is None:
            writer.transaction = begun = Transaction()
            self.world.after(TRANSACTION_TIMEOUT_S, lambda: self._time_out(writer, begun))
        return writer.transaction

    def end_transaction(self, name: str, epoch: int) -> None:
        self._end(self._writer(name, epoch), committed=True)

    def abort_transaction(self, name: str, epoch: int) -> None:
        self._end(self._writer(name, epoch), committed=False)

    def _writer(self, name: str, epoch: int) -> Writer:
        writer = self.writers[name]
        if writer.epoch != epoch:
            fenced = self.world.random.choice((ProducerFenced, InvalidProducerEpoch))
            raise fenced
        return writer

    def _time_out(self, writer: Writer, transaction: Transaction) -> None:
        if writer.transaction is transaction:
            self._end(writer, committed=False)
            writer.epoch += 1

    def _end(self, writer: Writer, *, committed: bool) -> None:
        transaction, writer.transaction = writer.transaction, None
        if transaction is None:
            return
        transaction.committed = committed
        if committed:
            self.committed.update(transaction.offsets)
        for at in transaction.partitions:
            log = self.log(at)
            log.open = {offset: other for offset, other in log.open.items() if other is not transaction}
            self.append(at, None, None, transaction=transaction, marker=True)

    def compact(self, topics: Mapping[TopicPartition, Log]) -> None:
        """Keep the newest record of each key among what is stable."""
        for log in topics.values():
            newest = {entry.key: entry.offset for entry in log.entries if entry.visible}
            log.entries = [
                entry
                for entry in log.entries
                if entry.offset >= log.stable_end or (entry.visible and newest[entry.key] == entry.offset)
            ]
