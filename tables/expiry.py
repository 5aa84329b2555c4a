"""Finding what is to be forgotten: the tombstones of a sweep.

A sweep measures age against the partition's watermark, the time up to which every request has been answered, and not
against the clock: what a request still waiting in the partition may need is never deleted under it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tables.conversations import MemoryRules
from tables.records import Activity, Change, Ended, Erased, Table, decode, user_prefix
from tables.store import PartitionStore


def tombstones(
    store: PartitionStore, rules: MemoryRules, *, dedup_ms: int, erased_ms: int, watermark: int, scanned: Counter[Table]
) -> Iterator[Change | None]:
    """A deletion for every row that no request at or after `watermark` (Unix ms) may need; counts what is `scanned`.

    None for a row that stays, so that whoever iterates may pause at any row. What changed meanwhile is seen: a row is
    read again before its deletion is given out, and is to be deleted before the next pause.
    """

    def old(table: Table, value: bytes) -> bool:
        match table:
            case Table.CONVERSATIONS:
                return rules.expired(decode(value, Activity), watermark)
            case Table.ENDED:
                return watermark - decode(value, Ended).at > dedup_ms
            case _:
                return watermark - decode(value, Erased).at > erased_ms

    for table in (Table.CONVERSATIONS, Table.ENDED, Table.ERASED):
        for key, value in store.scan(table):
            scanned[table] += 1
            now = store.get(table, key) if old(table, value) else None
            yield Change(table, key, None) if now is not None and old(table, now) else None


def erasure(store: PartitionStore, user_id: str) -> list[Change]:
    """Deletions of everything that is remembered of a user's conversations.

    Ended request ids stay until their own horizon: they hold no text, and without them a replayed request would be
    answered again.
    """
    return [Change(Table.CONVERSATIONS, key, None) for key, _ in store.scan(Table.CONVERSATIONS, user_prefix(user_id))]
