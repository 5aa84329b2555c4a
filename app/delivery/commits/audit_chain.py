"""How the records of `audit` form one chain in each partition.

    record n                      record n + 1
    sequence  n                   sequence  n + 1
    previous  SHA-256(n - 1)      previous  SHA-256 of the value of record n, as its bytes are in Kafka

The partition's owner extends the chain in the transaction that commits what the record is about. The chain's head, the
sequence and the hash of its last record, is a row of the table `audit`. It is written in the same transaction, so the
next owner continues exactly there, and a cut of the topic's tail shows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from app.delivery.record import Outgoing
from app.settings import Settings
from app.wire.audit import AuditRecord
from app.wire.codec import encode
from tables.records import AUDIT_HEAD, AuditHead, Change, Table, decode
from tables.records import encode as encode_row
from tables.store import PartitionStore


def hash_of(value: bytes) -> str:
    """The SHA-256 of a record's value, in hexadecimal digits."""
    return hashlib.sha256(value).hexdigest()


def head_of(store: PartitionStore) -> AuditHead:
    raw = store.get(Table.AUDIT, AUDIT_HEAD)
    return AuditHead() if raw is None else decode(raw, AuditHead)


def extend(
    head: AuditHead, records: Iterable[AuditRecord], settings: Settings
) -> tuple[tuple[Change, ...], tuple[Outgoing, ...]]:
    """The new head as a table row, and the linked records; both empty without `records`, or if there is no audit."""
    if not settings.audit_retention_s:
        return (), ()
    links: list[Outgoing] = []
    for record in records:
        linked = msgspec.structs.replace(record, sequence=head.sequence + 1, previous=head.hash)
        value, headers = encode(linked, settings.wire_format)
        links.append(Outgoing(settings.topic("audit"), record.user_id.encode(), value, headers))
        head = AuditHead(linked.sequence, hash_of(value))
    if not links:
        return (), ()
    return (Change(Table.AUDIT, AUDIT_HEAD, encode_row(head)),), tuple(links)
