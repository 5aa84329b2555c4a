"""Find expired rows: the tombstones of a sweep.

Age is measured against the partition's watermark, the time up to which every request has been answered. It is not
measured against the clock: a sweep must never delete what a request that is still waiting may need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from tables.conversations import MemoryRules
from tables.records import Activity, Change, Ended, Erased, Table, decode, key_parts, user_prefix
from tables.records import key as row_key
from tables.store import PartitionStore
from tables.tool_calls import PROGRESS, ToolRounds


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
    """Yield a deletion for each row that no request at or after `watermark` (Unix ms) can need; counts `scanned` rows.

    `ended_ms` and `erased_ms` say how long ended request ids and erasure marks are kept; None means for ever. `on_mark`
    is called with each user and mark that stay.

    Yields None for each row that stays, so that the caller can pause at any row. A row is read again right before its
    deletion is yielded, and the caller must delete it before it pauses.
    """

    def old(table: Table, value: bytes) -> bool:
        match table:
            case Table.CONVERSATIONS:
                return rules.expired(decode(value, Activity), watermark)
            case Table.ENDED:
                return watermark - decode(value, Ended).at > ended_ms
            case Table.CALLS:
                return decode(value, ToolRounds).asked_at < watermark
            case _:
                return erased_ms is not None and watermark - decode(value, Erased).at > erased_ms

    for table in (Table.CONVERSATIONS, Table.ENDED, Table.ERASED, Table.CALLS):
        for key, value in store.scan(table):
            if key == PROGRESS:
                continue
            scanned[table] += 1
            if table is Table.ERASED and not old(table, value):
                on_mark(key_parts(key)[0], decode(value, Erased))
            now = store.get(table, key) if old(table, value) else None
            yield Change(table, key, None) if now is not None and old(table, now) else None


def mark_of(store: PartitionStore, user_id: str) -> Erased | None:
    """The mark of the user's last erasure, None if the partition has none."""
    raw = store.get(Table.ERASED, row_key(user_id))
    return None if raw is None else decode(raw, Erased)


def erasure(store: PartitionStore, user_id: str, at: int) -> list[Change]:
    """Deletions of all conversations of a user, and of the calls of requests up to the time `at`.

    Ended request ids stay until their own expiry. They hold no text, and without them a replayed request would be
    answered again.
    """
    prefix = user_prefix(user_id)
    conversations = [Change(Table.CONVERSATIONS, key, None) for key, _ in store.scan(Table.CONVERSATIONS, prefix)]
    calls = store.scan(Table.CALLS, prefix)
    return conversations + [Change(Table.CALLS, key, None) for key, row in calls if decode(row, ToolRounds).at <= at]
