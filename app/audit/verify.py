"""Verify chains of `audit`: was a record changed, removed or added, or was the end cut?

The links show changes and gaps in the middle. The end shows by heads that are kept elsewhere: the row in the changelog
of the table `audit`, which the workers write, and the signed heads of a seal (seal.py). The row
shows damage to the topic. A seal also shows a change by a person who can write to all of Kafka.

The row is read twice. What it was before the topic was read has to be in the chain. What it is afterwards is the end: a
record behind it was not written by a worker, because a worker commits both together.

Records before the first one have left by retention, so a chain may begin at any sequence, and one that was quiet for
longer than the retention has no record at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from app.delivery.commits.audit_chain import hash_of
from app.wire.audit import AuditRecord
from app.wire.codec import Headers, decode
from app.wire.error import WireError
from tables.records import AuditHead


@dataclass(frozen=True, slots=True)
class Finding:
    """Something is wrong at or before this offset; `offset` is None at the end of the chain."""

    partition: int
    offset: int | None
    what: str

    def __str__(self) -> str:
        return f"partition {self.partition}, {'end' if self.offset is None else f'offset {self.offset}'}: {self.what}"


@dataclass(slots=True)
class Chain:
    """The chain of one partition, read from its first record on. `heads` are those that it must contain. Records from
    before `kept_since`, Unix milliseconds, may have left by retention.
    """

    partition: int
    kept_since: int = 0
    heads: dict[int, str] = field(default_factory=dict)
    first: int | None = None
    last: AuditHead = field(default_factory=AuditHead)
    records: int = 0
    findings: list[Finding] = field(default_factory=list)
    _times: dict[int, int] = field(default_factory=dict)
    _tail: dict[int, str] = field(default_factory=dict)

    def expect(self, heads: Iterable[AuditHead], written_by: int | None = None) -> None:
        """The chain must contain these heads, unless they are older than its first record. Their records were written
        by then, Unix milliseconds; None if that is not known.
        """
        for head in heads:
            if head.sequence < 0:
                continue
            if written_by is not None:
                self._times[head.sequence] = min(written_by, self._times.get(head.sequence, written_by))
            if self.heads.setdefault(head.sequence, head.hash) != head.hash:
                self._find(None, f"two heads of record {head.sequence} differ")

    def add(self, offset: int, key: bytes | None, value: bytes | None, headers: Headers = None) -> None:
        self.records += 1
        try:
            record = decode(AuditRecord, value, headers)
        except WireError as error:
            self._find(offset, f"not an audit record: {error}")
            return
        head = AuditHead(record.sequence, hash_of(value or b""))
        expected = self.last.sequence + 1
        if key != record.user_id.encode():
            self._find(offset, f"record {record.sequence} has another key than its user")
        if self.first is None:
            self.first = record.sequence
        elif record.sequence > expected:
            self._find(offset, f"records {expected} to {record.sequence - 1} are missing")
        elif record.sequence < expected:
            self._find(
                offset, f"record {record.sequence} follows record {self.last.sequence}: it was added or repeated"
            )
            return
        elif record.previous != self.last.hash:
            self._find(
                offset, f"record {self.last.sequence} was changed: record {record.sequence} has another hash of it"
            )
        if self.heads.get(record.sequence, head.hash) != head.hash:
            self._find(offset, f"record {record.sequence} was changed: it has another hash than its head")
        self.last = head
        if record.sequence >= max(self.heads, default=0):
            self._tail[record.sequence] = head.hash

    def confirm(self, heads: Iterable[AuditHead]) -> None:
        """These are the newest heads after the last record was read, the newest one last."""
        newest = AuditHead()
        for newest in heads:
            is_new = newest.sequence not in self.heads
            if is_new and self._tail.get(newest.sequence, newest.hash) != newest.hash:
                self._find(None, f"record {newest.sequence} was changed: it has another hash than its head")
            if newest.sequence <= self.last.sequence:
                self.heads.setdefault(newest.sequence, newest.hash)
        if newest.sequence < self.last.sequence:
            self._find(None, f"records {newest.sequence + 1} to {self.last.sequence} were added: no worker wrote them")

    @property
    def confirmed(self) -> AuditHead:
        """The newest head of a chain without findings."""
        newest = max(self.heads, default=-1)
        return AuditHead(newest, self.heads.get(newest, ""))

    @property
    def has_left(self) -> bool:
        """Whether it has no record any more, because all of them are older than the retention."""
        newest = max(self.heads, default=-1)
        return newest >= 0 and not self.records and self._times.get(newest, self.kept_since) < self.kept_since

    def end(self) -> list[Finding]:
        """All findings, once every record was added."""
        newest = max(self.heads, default=-1)
        if newest > self.last.sequence and not self.has_left:
            why = "the end was cut" if self.records else "all records were deleted"
            self._find(None, f"{why}: records {self.last.sequence + 1} to {newest} are missing")
        return self.findings

    def _find(self, offset: int | None, what: str) -> None:
        self.findings.append(Finding(self.partition, offset, what))
