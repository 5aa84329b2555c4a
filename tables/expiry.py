"""Finding what is to be forgotten: the tombstones of a sweep.

A sweep measures age against the partition's watermark, the time up to which every request has been answered, and not
against the clock: what a request still waiting in the partition may need is never deleted under it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tables.conversations import MemoryRules
from tables.records import Activity, Change, Ended, Erased, Table, decode, key_parts, user_prefix
from tables.records import key as row_key
from tables.store import PartitionStore


def tombstones(
    store: PartitionStore,
    rules: MemoryRules,
    *,
    ended_ms: int,
    erased_ms: int | None,
    watermark: int,
    scanned: Counter[Table],
    on_mark: Callable[[str, Erased], object] = lambda _user, _mark: None,
) -> Iterator[Change | None]:
    """A deletion for every row that no request at or after `watermark` (Unix ms) may need; counts what is `scanned`.

    `ended_ms` and `erased_ms` are how long the ids of ended requests and the marks of erasures are kept; None is for
    ever. `on_mark` is called with each user and mark that stay.

    None for a row that stays, so that the caller may pause at any row. What changed meanwhile is seen: a row is read
    again before its deletion is given out, and is to be deleted before the next pause.
    """

    def old(table: Table, value: bytes) -> bool:
        match table:
            case Table.CONVERSATIONS:
                return rules.expired(decode(value, Activity), watermark)
            case Table.ENDED:
                return watermark - decode(value, Ended).at > ended_ms
            case _:
                return erased_ms is not None and watermark - decode(value, Erased).at > erased_ms

    for table in (Table.CONVERSATIONS, Table.ENDED, Table.ERASED):
        for key, value in store.scan(table):
            scanned[table] += 1
            if table is Table.ERASED and not old(table, value):
                on_mark(key_parts(key)[0], decode(value, Erased))
            now = store.get(table, key) if old(table, value) else None
            yield Change(table, key, None) if now is not None and old(table, now) else None


def mark_of(store: PartitionStore, user_id: str) -> Erased | None:
    """The mark of the user's last erasure; None where the partition holds none."""
    raw = store.get(Table.ERASED, row_key(user_id))
    return None if raw is None else decode(raw, Erased)


def erasure(store: PartitionStore, user_id: str) -> list[Change]:
    """Deletions of everything that is remembered of a user's conversations.

    Ended request ids stay until their own horizon: they hold no text, and without them a replayed request would be
    answered again.
    """
    return [Change(Table.CONVERSATIONS, key, None) for key, _ in store.scan(Table.CONVERSATIONS, user_prefix(user_id))]
