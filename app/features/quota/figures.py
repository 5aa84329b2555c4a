"""What tenants have used, for their limits.

The figures of a process come from two sources:

- what it has admitted and seen answered in the last minute on the partitions that it has, counted at once;
- the topic `usage`: the last minute of all other partitions, and the cost of the calendar month (UTC).

A partition that has just come here has no minute of its own yet. Until it has, its last minute by `usage` counts for
what is missing; one that has left counts by `usage` alone. So a rolling restart counts nothing twice and leaves
nothing out.

Names of tenants come from users, and anybody who may send requests can make up more. Those that the policy names have
figures of their own, and so have the next `MOST_OTHERS`; all beyond that share one set.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from app.wire.usage import UsageWindow

ALL_OTHERS = "*"
MOST_OTHERS = 5000
MINUTE_S = 60
MINUTE_MS = 60_000
REVISED_MS = 60 * MINUTE_MS
"""How long after a window its revisions may come: longer than the grace period of a window of up to 12 minutes."""
_DAY_MS = 24 * REVISED_MS
_SWEPT_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Used:
    """Of one minute."""

    requests: float = 0.0
    tokens: float = 0.0


class TenantFigures:
    """`now` is in Unix milliseconds; `owned` are those of the `partitions` that this process has. One that reads its
    new partitions from `reads_back_ms` ago counts those milliseconds by itself.
    """

    def __init__(
        self,
        now: Callable[[], int],
        owned: Callable[[], Collection[int]],
        partitions: int,
        *,
        reads_back_ms: int = 0,
    ) -> None:
        self.named: Collection[str] = frozenset()
        self._now = now
        self._owned = owned
        self._partitions = partitions
        self._reads_back_ms = reads_back_ms
        self._since: dict[int, int] = {}  # of the partitions that this process has
        self._tenants: dict[str, _Tenant] = {}
        self._turn: Iterator[str] = iter(())

    def count(self, tenant: str, partition: int, *, requests: int = 0, tokens: int = 0, cost: float = 0.0) -> None:
        """Count what this process has admitted or seen answered on one of its partitions."""
        now = self._moment()
        own = self._of(tenant, now).own.setdefault(partition, _Own())
        second = now // 1000
        before = own.seconds.get(second, Used())
        own.seconds[second] = Used(before.requests + requests, before.tokens + tokens)
        own.forget(second - MINUTE_S)
        if cost:
            minute = now - now % MINUTE_MS
            own.costs[minute] = own.costs.get(minute, 0.0) + cost

    def add(self, window: UsageWindow) -> None:
        """Take a record of `usage`; a later revision of a window replaces the earlier one."""
        now = self._moment()
        self._of(window.tenant, now).add(window, month_start(now))

    @property
    def share(self) -> float:
        """Which part of all partitions this process has."""
        return len(self._owned()) / self._partitions

    def own_minute(self, tenant: str) -> Used:
        """What this process has admitted and seen answered in the last minute, on the partitions that it has."""
        since = self._moment() // 1000 - MINUTE_S
        own = [
            used
            for partition, one in self._figures_of(tenant).own.items()
            if partition in self._since
            for second, used in one.seconds.items()
            if second > since
        ]
        return Used(sum(used.requests for used in own), sum(used.tokens for used in own))

    def others_minute(self, tenant: str) -> Used:
        """The newest minute of the other processes' partitions, by `usage`, and of new partitions what is missing."""
        now = self._moment()
        figures = self._figures_of(tenant)
        if figures.others is None or figures.others[0] != now // 1000:
            figures.others = now // 1000, figures.newest_minute(now, self._part)
        return figures.others[1]

    def cost_of_month(self, tenant: str) -> float:
        """Of the windows that are published, and of what this process has seen since."""
        begin = month_start(self._now())
        figures = self._figures_of(tenant)
        return figures.costs.get(begin, 0.0) + figures.unpublished(begin)

    def _moment(self) -> int:
        """The time; notes which partitions have come and gone by now."""
        now, owned = self._now(), {*self._owned()}
        if owned != self._since.keys():
            come = owned - self._since.keys()
            self._since = {one: self._since.get(one, now - self._reads_back_ms) for one in owned}
            for tenant in self._tenants.values():
                tenant.others = None
                for partition in come & tenant.own.keys():
                    tenant.own[partition].seconds.clear()  # another process has counted it since
        self._sweep(now)
        return now

    def _part(self, partition: int, now: int) -> float:
        """Which part of the partition's last minute this process has not counted itself."""
        since = self._since.get(partition)
        return 1.0 if since is None else min(1.0, max(0.0, 1 - (now - since) / MINUTE_MS))

    def _of(self, name: str, now: int) -> _Tenant:
        figures = self._tenants.setdefault(self._bucket(name), _Tenant())
        figures.touched = now
        figures.others = None
        return figures

    def _figures_of(self, name: str) -> _Tenant:
        return self._tenants.get(self._bucket(name)) or _Tenant()

    def _bucket(self, name: str) -> str:
        is_full = len(self._tenants) >= MOST_OTHERS + len(self.named)
        return ALL_OTHERS if is_full and name not in self._tenants and name not in self.named else name

    def _sweep(self, now: int) -> None:
        """A few at a time: all of them at once would hold the event loop."""
        names = [*islice(self._turn, _SWEPT_AT_ONCE)]
        if not names:
            self._turn = iter([*self._tenants])
        for name in names:
            tenant = self._tenants.get(name)
            if tenant is None or tenant.swept == now // MINUTE_MS:
                continue
            tenant.swept = now // MINUTE_MS
            tenant.sweep(now, month_start(now))
            if tenant.is_empty:
                del self._tenants[name]


@dataclass(slots=True)
class _Own:
    """What this process has counted on one partition: by second for the last minute, and the cost by minute."""

    seconds: dict[int, Used] = field(default_factory=dict)
    costs: dict[int, float] = field(default_factory=dict)

    def forget(self, second: int) -> None:
        for old in [one for one in self.seconds if one <= second]:
            del self.seconds[old]


@dataclass(slots=True)
class _Tenant:
    """Of one tenant: what this process has counted by partition, the `recent` windows of each partition, which may
    still be revised, the `costs` of the windows by month, and how far they are published (`until`, by partition).
    `others` is the newest minute of the other partitions and the second of its calculation.
    """

    own: dict[int, _Own] = field(default_factory=dict)
    recent: dict[int, dict[tuple[object, ...], UsageWindow]] = field(default_factory=dict)
    costs: dict[int, float] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    touched: int = 0
    swept: int = 0
    others: tuple[int, Used] | None = None

    def add(self, window: UsageWindow, this_month: int) -> None:
        recent = self.recent.setdefault(window.partition, {})
        key = (window.window_start, window.model, window.route, window.experiment, window.arm)
        known = recent.get(key)
        if known is not None and known.revision >= window.revision:
            return
        more = window.cost - (0.0 if known is None else known.cost)
        if more and (month := month_start(window.window_start)) >= this_month:
            self.costs[month] = self.costs.get(month, 0.0) + more
        end = window.window_start + window.window_ms
        self.until[window.partition] = max(self.until.get(window.partition, 0), end)
        recent[key] = window
        for old in [one for one, kept in recent.items() if kept.window_start < window.window_start - REVISED_MS]:
            del recent[old]

    def newest_minute(self, now: int, part: Callable[[int, int], float]) -> Used:
        """The sum over the partitions, each by its `part`."""
        requests = tokens = 0.0
        for partition, windows in self.recent.items():
            counts = part(partition, now)
            recent = [window for window in windows.values() if _is_recent(window, now)] if counts else []
            newest = max((window.window_start for window in recent), default=0)
            for window in recent:
                if window.window_start > newest - MINUTE_MS:
                    share = counts * MINUTE_MS / max(window.window_ms, MINUTE_MS)
                    requests += share * window.requests
                    tokens += share * (window.prompt_tokens + window.completion_tokens)
        return Used(requests, tokens)

    def unpublished(self, begin: int) -> float:
        """What this process has seen since the last windows. They have the minute in which an answer ended, maybe the
        one before, so a partition without further windows follows the others an hour later.
        """
        least = max(begin, max(self.until.values(), default=0) - REVISED_MS)
        for partition, own in self.own.items():
            since = max(least, self.until.get(partition, 0))
            for minute in [one for one in own.costs if one < since]:
                del own.costs[minute]
        return sum(sum(own.costs.values()) for own in self.own.values())

    def sweep(self, now: int, begin: int) -> None:
        self.unpublished(begin)
        self.costs = {month: cost for month, cost in self.costs.items() if month >= begin}
        for own in self.own.values():
            own.forget(now // 1000 - MINUTE_S)
            for minute in [one for one in own.costs if one < now - _DAY_MS and one % _DAY_MS]:
                day = max(begin, minute - minute % _DAY_MS)
                own.costs[day] = own.costs.get(day, 0.0) + own.costs.pop(minute)
        self.own = {partition: own for partition, own in self.own.items() if own.seconds or own.costs}
        if self.touched < now - REVISED_MS:
            self.recent.clear()
            self.until.clear()

    @property
    def is_empty(self) -> bool:
        return not (self.own or self.recent or self.costs)


def _is_recent(window: UsageWindow, now: int) -> bool:
    """Whether the window may be the newest that is published by now: it ended within its own length and a minute."""
    return window.window_start + window.window_ms > now - MINUTE_MS - window.window_ms


def month_start(now: int) -> int:
    """The beginning of the calendar month in UTC; both in Unix milliseconds."""
    at = datetime.fromtimestamp(now / 1000, UTC)
    return int(datetime(at.year, at.month, 1, tzinfo=UTC).timestamp() * 1000)
