"""Digests of texts on `audit`: keyed, by partition and user."""

from __future__ import annotations

from pathlib import Path

from app.delivery.commits.audit_chain import hash_of, keyed, text_digest
from app.settings import Settings
from app.wire.audit import AuditAction, AuditRecord
from tables.records import AUDIT_KEY, AuditKey, decode_row
from tables.store import PartitionStore

SETTINGS = Settings(_env_file=None)
TEXT = "My card is 4111 1111 1111 1111"


def asked(user: str = "nina") -> AuditRecord:
    sha256 = hash_of(TEXT.encode())
    return AuditRecord(
        action=AuditAction.REQUEST, outcome="stop", user_id=user, at=1, prompt_sha256=sha256, answer_sha256=sha256
    )


def test_a_text_is_found_with_the_key_alone_and_equal_texts_of_two_users_differ(tmp_path: Path) -> None:
    store = PartitionStore.open(tmp_path, now_ms=0, tombstones_kept_ms=0)
    (row,), (nina, omar) = keyed(store, [asked(), asked("omar")], SETTINGS)
    assert row.key == AUDIT_KEY
    key = decode_row(row.value or b"", AuditKey).key
    plain = hash_of(TEXT.encode())
    assert nina.prompt_sha256 == nina.answer_sha256 == text_digest(key, "nina", plain)
    assert len({plain, nina.prompt_sha256, omar.prompt_sha256}) == 3
    assert omar.prompt_sha256 == text_digest(key, "omar", plain)

    store.apply([row], {row.table: 1}, now_ms=1)
    assert keyed(store, [asked()], SETTINGS) == ((), [nina])
    store.close()


def test_without_texts_or_audit_there_is_nothing_to_hide(tmp_path: Path) -> None:
    store = PartitionStore.open(tmp_path, now_ms=0, tombstones_kept_ms=0)
    erasure = AuditRecord(action=AuditAction.ERASURE, outcome="done", user_id="nina", at=1)
    assert keyed(store, [erasure], SETTINGS)[1] == [erasure]
    assert keyed(store, [], SETTINGS) == ((), [])
    assert keyed(store, [asked()], SETTINGS.model_copy(update={"audit_retention_s": 0})) == ((), [])
    store.close()
