"""Find rows to delete: those that have expired, and those of a user who is erased.

Age is measured against the partition's watermark, the time up to which every request has been answered. It is not
measured against the clock: a sweep must never delete what a request that is still waiting may need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import repeat

from tables.conversations import MemoryRules
from tables.records import Activity, Change, Ended, Erased, Table, decode_row, key_parts, user_prefix
from tables.records import key as row_key
from tables.store import PartitionStore
from tables.tool_calls import PROGRESS, ToolRounds

# Few enough for a short transaction, and for a step of the event loop of a few milliseconds.
_AT_ONCE = 500
_SCANNED_AT_ONCE = 1000
_BYTES_OF_ROW = 4096


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

    Yields None for each row that stays, so that the caller can pause at any row, and more often for long ones. A row is
    read again right before its deletion is yielded, and the caller must delete it before it pauses.
    """

    def old(table: Table, value: bytes) -> bool:
        match table:
            case Table.CONVERSATIONS:
                return rules.expired(decode_row(value, Activity), watermark)
            case Table.ENDED:
                return watermark - decode_row(value, Ended).at > ended_ms
            case Table.CALLS:
                return decode_row(value, ToolRounds).asked_at < watermark
            case _:
                mark = decode_row(value, Erased)
                return erased_ms is not None and mark.done and watermark - mark.at > erased_ms

    for table in (Table.CONVERSATIONS, Table.ENDED, Table.ERASED, Table.CALLS):
        for key, value in store.scan(table):
            if key == PROGRESS:
                continue
            scanned[table] += 1
            yield from _pauses(value)
            if table is Table.ERASED and not old(table, value):
                on_mark(key_parts(key)[0], decode_row(value, Erased))
            now = store.get(table, key) if old(table, value) else None
            yield Change(table, key, None) if now is not None and old(table, now) else None


def mark_of(store: PartitionStore, user_id: str) -> Erased | None:
    """The mark of the user's last erasure, None if the partition has none."""
    raw = store.get(Table.ERASED, row_key(user_id))
    return None if raw is None else decode_row(raw, Erased)


def erasure(store: PartitionStore, user_id: str, mark: Erased) -> Iterator[Change | None]:
    """Yield a deletion for each conversation that `mark` hides, and for the calls of requests up to its time; None for
    each row that stays, as `tombstones` does.

    Ended request ids stay until their own expiry. They hold no text, and without them a replayed request would be
    answered again.
    """

    def old(table: Table, value: bytes) -> bool:
        if table is Table.CONVERSATIONS:
            return mark.hides(decode_row(value, Activity))
        return decode_row(value, ToolRounds).at <= mark.at

    for table in (Table.CONVERSATIONS, Table.CALLS):
        for key, value in store.scan(table, user_prefix(user_id)):
            yield from _pauses(value)
            now = store.get(table, key) if old(table, value) else None
            yield Change(table, key, None) if now is not None and old(table, now) else None


def has_rows(store: PartitionStore, user_id: str) -> bool:
    """Whether the partition has anything of the user but a mark."""
    tables = (Table.CONVERSATIONS, Table.CALLS, Table.ENDED)
    return any(next(store.scan(table, user_prefix(user_id)), None) is not None for table in tables)


def some(rows: Iterator[Change | None]) -> tuple[list[Change], bool]:
    """The next deletions, as many as one transaction and one step of the event loop may have; and whether there may be
    more.
    """
    deletions: list[Change] = []
    for scanned, row in enumerate(rows, start=1):
        if row is not None:
            deletions.append(row)
        if len(deletions) >= _AT_ONCE or scanned >= _SCANNED_AT_ONCE:
            return deletions, True
    return deletions, False


def _pauses(value: bytes) -> Iterator[None]:
    """A long row counts as several, because reading it takes as long."""
    return repeat(None, len(value) // _BYTES_OF_ROW)
