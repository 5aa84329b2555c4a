"""Usage windows of one partition: what was answered in each minute, by tenant and model, and the rules of closing.

Rows of the table `usage`, keys and values in JSON like all others:

| key | value |
|---|---|
| `["progress"]` | `Progress`: up to where `turns` is counted |
| `[start, length, "tenant", "model"]` | `Tally` |

A window closes once the watermark has passed its end, and is told then. Turns that come later, within the grace, make
it told again under the next revision, each revision the whole window. After the grace the row is deleted; a turn that
is later still is counted in the window of the watermark, and in its `late`: so the sum over all windows is always the
number of turns, which matters more to a bill than the minute. The watermark is event time, so that counting old turns
again gives the same windows; only where nothing is left to count does the clock move it on. Times are Unix
milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from tables.records import Change, Table, encode

# What is on its way into `turns` when a window ends: without it every busy window would be told twice.
SETTLE_MS = 2000

BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000)
"""Upper bounds of the latency buckets, inclusive; one more bucket holds what is above the last."""

PROGRESS = encode(["progress"])


class Latency(msgspec.Struct, frozen=True):
    """Latencies in milliseconds; `buckets[i]` counts those up to `BOUNDS_MS[i]` and above the bound before."""

    count: int = 0
    sum: int = 0
    max: int = 0
    buckets: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)

    def with_one(self, ms: int) -> Latency:
        place = bisect_left(BOUNDS_MS, ms)
        buckets = (*self.buckets[:place], self.buckets[place] + 1, *self.buckets[place + 1 :])
        return Latency(self.count + 1, self.sum + ms, max(self.max, ms), buckets)


class Tally(msgspec.Struct, frozen=True):
    """What a window holds; `told` is the number of its last revision, 0 where it was never told."""

    told: int = 0
    requests: int = 0
    late: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    first_token: Latency = Latency()
    duration: Latency = Latency()


class Progress(msgspec.Struct, frozen=True):
    """Up to where turns are counted.

    next: Offset of `turns` up to which all is counted.
    seen: The newest time that was counted.
    forgotten: Windows that begin before this time were forgotten, and are not begun again: their revisions are out, and
        a longer grace than they had does not bring them back.
    """

    next: int = 0
    seen: int = 0
    forgotten: int = 0


class WindowKey(msgspec.Struct, frozen=True, array_like=True):
    start: int
    length: int
    tenant: str
    model: str

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Counted:
    """One turn as it is counted. `first_token_ms` is None for an answer without tokens."""

    at: int
    tenant: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost: float
    first_token_ms: int | None
    duration_ms: int


@dataclass(slots=True)
class Windows:
    """The windows that are open or within their grace, as of `next`. What changes is kept until `drain`."""

    length: int
    grace: int
    next: int = 0
    _seen: int = 0
    _forgotten: int = 0
    _tallies: dict[WindowKey, Tally] = field(default_factory=dict)
    _changed: dict[WindowKey, Tally | None] = field(default_factory=dict)
    _untold: set[WindowKey] = field(default_factory=set)

    @classmethod
    def load(cls, rows: Iterable[tuple[bytes, bytes]], *, length: int, grace: int) -> Windows:
        """The state that the rows of the table hold."""
        windows = cls(length, grace)
        for key, value in rows:
            if key == PROGRESS:
                progress = msgspec.json.decode(value, type=Progress)
                windows.next, windows._seen, windows._forgotten = progress.next, progress.seen, progress.forgotten
            else:
                windows._tallies[msgspec.json.decode(key, type=WindowKey)] = msgspec.json.decode(value, type=Tally)
        # A row that was told once is as it was told: its record was committed with it.
        windows._untold = {key for key, tally in windows._tallies.items() if not tally.told}
        return windows

    @property
    def watermark(self) -> int:
        return self._seen - SETTLE_MS

    @property
    def due_at(self) -> int | None:
        """The clock's time at which the next window can be told or forgotten; None where there is no window."""
        ends = [key.end if key in self._untold else key.end + self.grace for key in self._tallies]
        return min(ends) + SETTLE_MS if ends else None

    def count(self, turn: Counted, *, now: int) -> None:
        """A time in the future counts as now, so that no clock that is fast closes windows of the others."""
        at = min(turn.at, now)
        start = at - at % self.length
        key = WindowKey(start, self.length, turn.tenant, turn.model)
        late = key.end + self.grace <= self.watermark or (start < self._forgotten and key not in self._tallies)
        if late:
            start = max(self.watermark, self._forgotten)
            key = WindowKey(start - start % self.length, self.length, turn.tenant, turn.model)
        self._put(key, _with(self._tallies.get(key, Tally()), turn, late=late))
        self._untold.add(key)
        self._seen = max(self._seen, at)

    def advance(self, now: int) -> None:
        """Nothing is left to count: time goes on by the clock."""
        self._seen = max(self._seen, now)

    def close(self) -> Iterator[tuple[WindowKey, Tally]]:
        """The windows to be told now, each with its new revision; those past their grace are forgotten."""
        for key in sorted(self._untold, key=lambda key: key.start):
            if key.end <= self.watermark:
                tally = self._tallies[key]
                self._put(key, msgspec.structs.replace(tally, told=tally.told + 1))
                self._untold.discard(key)
                yield key, self._tallies[key]
        for key in [key for key in self._tallies if key.end + self.grace <= self.watermark]:
            del self._tallies[key]
            self._forgotten = max(self._forgotten, key.end)
            self._changed[key] = None

    def drain(self) -> tuple[Change, ...]:
        """The rows that have changed, with the progress; empty where no window has."""
        if not self._changed:
            return ()
        rows = [
            Change(Table.USAGE, encode(key), None if tally is None else encode(tally))
            for key, tally in self._changed.items()
        ]
        self._changed.clear()
        return (*rows, Change(Table.USAGE, PROGRESS, encode(Progress(self.next, self._seen, self._forgotten))))

    def _put(self, key: WindowKey, tally: Tally) -> None:
        self._tallies[key] = self._changed[key] = tally


def _with(tally: Tally, turn: Counted, *, late: bool) -> Tally:
    first_token = tally.first_token
    if turn.first_token_ms is not None:
        first_token = first_token.with_one(turn.first_token_ms)
    return Tally(
        told=tally.told,
        requests=tally.requests + 1,
        late=tally.late + late,
        prompt_tokens=tally.prompt_tokens + turn.prompt_tokens,
        completion_tokens=tally.completion_tokens + turn.completion_tokens,
        cached_tokens=tally.cached_tokens + turn.cached_tokens,
        cost=tally.cost + turn.cost,
        first_token=first_token,
        duration=tally.duration.with_one(turn.duration_ms),
    )
