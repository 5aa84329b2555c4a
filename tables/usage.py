"""Usage windows of one partition: what was answered in each minute, by tenant, model and route, and when a window
closes.

Rows of the table `usage`; keys and values are JSON, as in all tables:

| key | value |
|---|---|
| `["progress"]` | `UsagePosition`: the position up to which `turns` is counted |
| `[start, length, "tenant", "model"]`, with a route also `"route", "experiment", "arm"` | `Tally` |

A window closes when the watermark passes its end, and is published then. Turns that arrive later, within the grace
period, cause a new revision, which holds the whole window. After the grace period the row is deleted. A turn that
arrives later still is counted in the current window, and in its `late`. The sum over all windows therefore always
equals the number of turns, which matters more for billing than the exact minute. The watermark is event time, so
counting old turns again gives the same windows. The clock advances it only when no turns are left to count. Times are
Unix milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import add

import msgspec

from tables.records import RowChange, Table, encode

# Time for turns that are still on their way when a window ends. Without it, every busy window would be published twice.
ARRIVAL_MS = 2000

BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
"""Upper bounds of the latency buckets, inclusive; one more bucket holds larger values."""

PROGRESS = encode(["progress"])


class Latency(msgspec.Struct, frozen=True):
    """Latencies in milliseconds: `buckets[i]` counts those above `BOUNDS_MS[i - 1]` and up to `BOUNDS_MS[i]`."""

    count: int = 0
    sum: int = 0
    max: int = 0
    buckets: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)

    @classmethod
    def of(cls, ms: int) -> Latency:
        bucket = bisect_left(BOUNDS_MS, ms)
        return cls(1, ms, ms, tuple(int(at == bucket) for at in range(len(BOUNDS_MS) + 1)))

    def __add__(self, other: Latency) -> Latency:
        buckets = tuple(map(add, self.buckets, other.buckets))
        return Latency(self.count + other.count, self.sum + other.sum, max(self.max, other.max), buckets)


class Tally(msgspec.Struct, frozen=True):
    """The counts of one window, or of one turn. `revision` numbers the window's last published record; 0 before the
    first. In stored rows, `revision` has the name `told`.
    """

    revision: int = msgspec.field(default=0, name="told")
    requests: int = 0
    late: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cached_requests: int = 0
    saved_tokens: int = 0
    cost: float = 0.0
    first_token: Latency = Latency()
    duration: Latency = Latency()

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(add, msgspec.structs.astuple(self), msgspec.structs.astuple(other)))


class UsagePosition(msgspec.Struct, frozen=True):
    """How far turns are counted.

    next: Offset in `turns` of the next turn to count.
    seen: The newest event time that was counted.
    forgotten: Windows that begin before this time are deleted and not created again, even if the grace period is made
        longer: their final revisions are published.
    """

    next: int = 0
    seen: int = 0
    forgotten: int = 0


Labels = tuple[str, str, str, str, str]
"""Tenant, model, route, experiment and arm."""


class WindowKey(msgspec.Struct, frozen=True, array_like=True):
    start: int
    length: int
    tenant: str
    model: str
    route: str = ""
    experiment: str = ""
    arm: str = ""

    @property
    def row(self) -> bytes:
        """The key of its row. Without a route it is that of older versions."""
        return encode(self if self.route else [self.start, self.length, self.tenant, self.model])

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(slots=True)
class Windows:
    """The windows that are open or within their grace period, as of `next`. Changes accumulate until `drain`."""

    length: int
    grace: int
    next: int = 0
    _newest: int = 0
    _forgotten: int = 0
    _tallies: dict[WindowKey, Tally] = field(default_factory=dict)
    _changed: dict[WindowKey, Tally | None] = field(default_factory=dict)
    _unpublished: set[WindowKey] = field(default_factory=set)

    @classmethod
    def load(cls, rows: Iterable[tuple[bytes, bytes]], *, length: int, grace: int) -> Windows:
        """Restore the state from the table's rows."""
        windows = cls(length, grace)
        for key, value in rows:
            if key == PROGRESS:
                progress = msgspec.json.decode(value, type=UsagePosition)
                windows.next, windows._newest, windows._forgotten = progress.next, progress.seen, progress.forgotten
            else:
                windows._tallies[msgspec.json.decode(key, type=WindowKey)] = msgspec.json.decode(value, type=Tally)
        # A published window is as it was published: its row was committed with the record.
        windows._unpublished = {key for key, tally in windows._tallies.items() if not tally.revision}
        return windows

    @property
    def watermark(self) -> int:
        return self._newest - ARRIVAL_MS

    @property
    def due_at(self) -> int | None:
        """The clock's time at which the next window can be published or deleted; None if there is no window."""
        ends = [key.end if key in self._unpublished else key.end + self.grace for key in self._tallies]
        return min(ends) + ARRIVAL_MS if ends else None

    def count(self, at: int, labels: Labels, turn: Tally, *, now: int) -> None:
        """Count a turn that ended at `at`. A time in the future is now: one fast clock closes no windows of others."""
        at = min(at, now)
        start = at - at % self.length
        key = WindowKey(start, self.length, *labels)
        late = key.end + self.grace <= self.watermark or (start < self._forgotten and key not in self._tallies)
        if late:
            start = max(self.watermark, self._forgotten)
            key = WindowKey(start - start % self.length, self.length, *labels)
        self._put(key, self._tallies.get(key, Tally()) + turn + Tally(late=int(late)))
        self._unpublished.add(key)
        self._newest = max(self._newest, at)

    def advance(self, now: int) -> None:
        """Advance the watermark by the clock; called when no turns are left to count."""
        self._newest = max(self._newest, now)

    def close(self) -> Iterator[tuple[WindowKey, Tally]]:
        """The windows to publish now, each with its new revision. Windows past their grace period are deleted."""
        for key in sorted(self._unpublished, key=lambda key: (key.start, key.row)):
            if key.end <= self.watermark:
                tally = self._tallies[key]
                self._put(key, msgspec.structs.replace(tally, revision=tally.revision + 1))
                self._unpublished.discard(key)
                yield key, self._tallies[key]
        for key in [key for key in self._tallies if key.end + self.grace <= self.watermark]:
            del self._tallies[key]
            self._forgotten = max(self._forgotten, key.end)
            self._changed[key] = None

    def drain(self) -> tuple[RowChange, ...]:
        """The changed rows and the progress; empty if no window has changed."""
        if not self._changed:
            return ()
        rows = [
            RowChange(Table.USAGE, key.row, None if tally is None else encode(tally))
            for key, tally in self._changed.items()
        ]
        self._changed.clear()
        return (
            *rows,
            RowChange(Table.USAGE, PROGRESS, encode(UsagePosition(self.next, self._newest, self._forgotten))),
        )

    def _put(self, key: WindowKey, tally: Tally) -> None:
        self._tallies[key] = self._changed[key] = tally
