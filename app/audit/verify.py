"""Verify chains of `audit`: was a record changed, removed or added, or was the end cut?

The links show changes and gaps in the middle. The end shows by heads that are kept elsewhere: the row in the changelog
of the table `audit`, which the workers write, and the signed heads of a seal (seal.py). The row
shows damage to the topic. A seal also shows a change by a person who can write to all of Kafka.

Records before the first one have left by retention, so a chain may begin at any sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from app.delivery.commits.audit_chain import hash_of
from app.wire import WireError, decode_audit
from app.wire.headers import Headers
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
    """The chain of one partition, read from its first record on. `heads` are those that it must contain."""

    partition: int
    heads: dict[int, str] = field(default_factory=dict)
    first: int | None = None
    last: AuditHead = field(default_factory=AuditHead)
    records: int = 0
    findings: list[Finding] = field(default_factory=list)

    def expect(self, heads: Iterable[AuditHead]) -> None:
        """The chain must contain these heads, unless they are older than its first record."""
        for head in heads:
            if head.sequence < 0:
                continue
            if self.heads.setdefault(head.sequence, head.hash) != head.hash:
                self._find(None, f"two heads of record {head.sequence} differ")

    def add(self, offset: int, key: bytes | None, value: bytes | None, headers: Headers = None) -> None:
        self.records += 1
        try:
            record = decode_audit(value, headers)
        except WireError as error:
            self._find(offset, f"not an audit record: {error}")
            return
        found = AuditHead(record.sequence, hash_of(value or b""))
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
        if self.heads.get(record.sequence, found.hash) != found.hash:
            self._find(offset, f"record {record.sequence} was changed: it has another hash than its head")
        self.last = found

    def end(self) -> list[Finding]:
        """All findings, once every record was added."""
        newest = max(self.heads, default=-1)
        if newest > self.last.sequence:
            why = "the end was cut" if self.records else "all records were deleted, or have left by retention"
            self._find(None, f"{why}: records {self.last.sequence + 1} to {newest} are missing")
        return self.findings

    def _find(self, offset: int | None, what: str) -> None:
        self.findings.append(Finding(self.partition, offset, what))
