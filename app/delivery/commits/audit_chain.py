"""How the records of `audit` form one chain in each partition.

    record n                      record n + 1
    sequence  n                   sequence  n + 1
    previous  SHA-256(n - 1)      previous  SHA-256 of the value of record n, as its bytes are in Kafka

The partition's owner extends the chain in the transaction that commits what the record is about. The chain's head, the
sequence and the hash of its last record, is a row of the table `audit`. It is written in the same transaction, so the
next owner continues exactly there, and a cut of the topic's tail shows.

The digests of texts in a record are keyed: a reader of `audit` cannot find a short text by trying, or see that two
users have written the same. The key is another row of the table, drawn with the partition's first record.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable

import msgspec

from app.delivery.record import Outgoing
from app.settings import Settings
from app.wire.audit import AuditRecord
from app.wire.codec import encode
from tables.records import AUDIT_HEAD, AUDIT_KEY, AuditHead, AuditKey, RowChange, Table, decode_row
from tables.records import encode as encode_row
from tables.store import PartitionStore

_KEY_BYTES = 32


def hash_of(value: bytes) -> str:
    """The SHA-256 of a record's value, in hexadecimal digits."""
    return hashlib.sha256(value).hexdigest()


def text_digest(key: bytes, user_id: str, sha256: str) -> str:
    """What `audit` has of a user's text with this SHA-256: HMAC-SHA-256 of the user and of that hash, hexadecimal."""
    return hmac.new(key, f"{user_id}\0{sha256}".encode(), hashlib.sha256).hexdigest()


def keyed(
    store: PartitionStore, records: Iterable[AuditRecord], settings: Settings
) -> tuple[tuple[RowChange, ...], list[AuditRecord]]:
    """The records with keyed digests of their texts, and the row of a key that was drawn for them."""
    plain = [*records]
    if not settings.audit_retention_s or not plain:
        return (), []
    raw = store.get(Table.AUDIT, AUDIT_KEY)
    key = secrets.token_bytes(_KEY_BYTES) if raw is None else decode_row(raw, AuditKey).key
    change = (RowChange(Table.AUDIT, AUDIT_KEY, encode_row(AuditKey(key))),) if raw is None else ()
    return change, [_keyed(record, key) for record in plain]


def _keyed(record: AuditRecord, key: bytes) -> AuditRecord:
    prompt, answer, arguments = (
        None if sha256 is None else text_digest(key, record.user_id, sha256)
        for sha256 in (record.prompt_sha256, record.answer_sha256, record.arguments_sha256)
    )
    return msgspec.structs.replace(record, prompt_sha256=prompt, answer_sha256=answer, arguments_sha256=arguments)


def head_of(store: PartitionStore) -> AuditHead:
    raw = store.get(Table.AUDIT, AUDIT_HEAD)
    return AuditHead() if raw is None else decode_row(raw, AuditHead)


def extend(
    head: AuditHead, records: Iterable[AuditRecord], settings: Settings
) -> tuple[tuple[RowChange, ...], tuple[Outgoing, ...]]:
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
    return (RowChange(Table.AUDIT, AUDIT_HEAD, encode_row(head)),), tuple(links)
