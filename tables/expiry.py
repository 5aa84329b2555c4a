"""Finding what is to be forgotten: the tombstones of a sweep.

A sweep measures age against the partition's watermark, the time up to which every request has been answered, and not
against the clock: what a request still waiting in the partition may need is never deleted under it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tables.conversations import MemoryRules
from tables.records import Change, Conversation, Ended, Erased, Table, decode, user_prefix
from tables.store import PartitionStore


def tombstones(
    store: PartitionStore, rules: MemoryRules, *, dedup_ms: int, erased_ms: int, watermark: int, scanned: Counter[Table]
) -> Iterator[Change]:
    """A deletion for every row that no request at or after `watermark` (Unix ms) may need; counts what is `scanned`."""
    for key, value in store.scan(Table.CONVERSATIONS):
        scanned[Table.CONVERSATIONS] += 1
        if rules.expired(decode(value, Conversation), watermark):
            yield Change(Table.CONVERSATIONS, key, None)
    for key, value in store.scan(Table.ENDED):
        scanned[Table.ENDED] += 1
        if watermark - decode(value, Ended).at > dedup_ms:
            yield Change(Table.ENDED, key, None)
    for key, value in store.scan(Table.ERASED):
        scanned[Table.ERASED] += 1
        if watermark - decode(value, Erased).at > erased_ms:
            yield Change(Table.ERASED, key, None)


def erasure(store: PartitionStore, user_id: str) -> list[Change]:
    """Deletions of everything that is remembered of a user's conversations.

    Ended request ids stay until their own horizon: they hold no text, and without them a replayed request would be
    answered again.
    """
    return [Change(Table.CONVERSATIONS, key, None) for key, _ in store.scan(Table.CONVERSATIONS, user_prefix(user_id))]
