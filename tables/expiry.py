"""Find rows to delete because they have expired; those that are erased: erasures.py.

Age is measured against the partition's watermark, the time up to which every request has been answered. It is not
measured against the clock: a sweep must never delete what a request that is still waiting may need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from tables.conversations import MemoryRules
from tables.erasures import Scope, pauses
from tables.records import Activity, Ended, Erased, RowChange, Table, decode_row
from tables.store import PartitionStore
from tables.tool_calls import PROGRESS, ToolRounds

Scanned = TypeVar("Scanned")

# Few enough for a short transaction, and for a step of the event loop of a few milliseconds.
_AT_ONCE = 500
_SCANNED_AT_ONCE = 1000


def tombstones(
    store: PartitionStore,
    rules: MemoryRules,
    *,
    ended_ms: int,
    erased_ms: int | None,
    watermark: int,
    scanned: Counter[Table],
    on_mark: Callable[[Scope, Erased], object] = lambda _scope, _mark: None,
) -> Iterator[RowChange | None]:
    """Yield a deletion for each row that no request at or after `watermark` (Unix ms) can need; counts `scanned` rows.

    `ended_ms` and `erased_ms` say how long ended request ids and erasure marks are kept; None means for ever. `on_mark`
    is called with each mark that stays, and what it is about.

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
            yield from pauses(value)
            if table is Table.ERASED and not old(table, value):
                on_mark(Scope.of_key(key), decode_row(value, Erased))
            now = store.get(table, key) if old(table, value) else None
            yield RowChange(table, key, None) if now is not None and old(table, now) else None


def some(scanned_rows: Iterator[Scanned | None]) -> tuple[list[Scanned], bool]:
    """The next ones, such as deletions, as many as one transaction and one step of the event loop may have; and whether
    there may be more.
    """
    rows: list[Scanned] = []
    for scanned, row in enumerate(scanned_rows, start=1):
        if row is not None:
            rows.append(row)
        if len(rows) >= _AT_ONCE or scanned >= _SCANNED_AT_ONCE:
            return rows, True
    return rows, False
