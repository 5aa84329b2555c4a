"""Estimate how long a user's request would wait in its partition, from a few observations per minute.

The distance between the committed offset and the end of a partition of `requests`, less what the commit says has
finished ahead of that offset, is an upper bound of its open requests: commits are late, and have no room for every
request that finished behind a long one. Ends of answers in `tokens` are therefore counted as well, and the lower value
is used. Requests without an end of their own (dead letters, duplicates) are counted until a commit has them.

Workers serve tenants in turn, and then the users of each, and read on past whoever has many requests. So ahead of a
user's next request are the user's own open ones; of each other user of the tenant as many as the user's turns need:
that one's open requests, but at most one more than the user's own; and of each other tenant, likewise, at most one more
than that is within the user's own tenant. A user without a tenant counts as one. Who has nothing open waits for one
request of each other tenant and user, however many one of them has sent. Requests of no known user delay nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from app.wire.ids import tenant_or_user

WINDOW_S = 60.0
OLD_S = 15.0
_FORGET_S = 600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One observation at a time of a monotonic clock, by partition: the ends of `requests`, its committed offsets plus
    what has finished ahead of them, and the answers ended so far.
    """

    at: float
    ends: Mapping[int, int]
    finished: Mapping[int, int]
    ended: Mapping[int, int]


class WaitEstimate:
    """Without input or output."""

    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._samples: deque[Sample] = deque()
        self._open: dict[int, int] = {}
        self._users: dict[int, OpenOfUsers] = {}

    def add(self, sample: Sample) -> None:
        before = self._samples[-1] if self._samples else None
        for partition, end in sample.ends.items():
            most = end - sample.finished.get(partition, 0)
            if before is not None:
                come = end - before.ends.get(partition, end)
                gone = sample.ended.get(partition, 0) - before.ended.get(partition, 0)
                most = min(most, self._open.get(partition, most) + come - gone)
            idle_since = before.at if before is not None and most <= 0 and not self._open.get(partition) else None
            self._open[partition] = max(0, most)
            self.users(partition).expire(sample.at, idle_since)
        self._samples.append(sample)
        while sample.at - self._samples[0].at > WINDOW_S:
            self._samples.popleft()

    def forget(self) -> None:
        self._samples.clear()
        self._open.clear()

    def keep(self, partitions: Collection[int]) -> None:
        """The users of other partitions are another gateway's."""
        self._users = {number: users for number, users in self._users.items() if number in partitions}

    def users(self, partition: int) -> OpenOfUsers:
        return self._users.setdefault(partition, OpenOfUsers())

    def wait_s(self, partition: int, user_id: str, now: float) -> float:
        """Seconds until a new request of the user would begin; 0 if it would begin at once."""
        if not self._samples or now - self._samples[-1].at > OLD_S:
            return 0.0
        first, last = self._samples[0], self._samples[-1]
        seconds = last.at - first.at
        everyone = self._open.get(partition, 0)
        if everyone < self._max_in_flight or not seconds:
            return 0.0
        ahead = min(everyone, self.users(partition).ahead_of(user_id)) - self._max_in_flight
        if ahead < 0:
            return 0.0
        # Without an observed end, all that is known is that the next one takes at least this long.
        # Dead letters finish, and have no end.
        ended = _growth(first.ended, last.ended, partition)
        gone = max(1, ended, _growth(first.finished, last.finished, partition))
        return (ahead + 1) * seconds / gone


def _growth(before: Mapping[int, int], now: Mapping[int, int], partition: int) -> int:
    return now.get(partition, 0) - before.get(partition, 0)


@dataclass(frozen=True, slots=True)
class _Open:
    """Open requests, and the monotonic time of the user's last change."""

    requests: int
    at: float


@dataclass(slots=True)
class _Tenant:
    """A tenant's users who have requests open, and how many these are together."""

    users: dict[str, _Open] = field(default_factory=dict)
    open: int = 0

    def put(self, user_id: str, requests: int, now: float) -> None:
        before = self.users.pop(user_id, None)
        self.open += requests - (0 if before is None else before.requests)
        if requests:
            self.users[user_id] = _Open(requests, now)


class OpenOfUsers:
    """How many open requests each user of a partition has, as far as this gateway knows.

    It counts requests that it has admitted until their answers end. Some never do: a request that was not sent after
    all, or a dead letter. Such counts go when the partition has been idle, or when nothing of the user has happened for
    `_FORGET_S`. Requests that were admitted elsewhere, or that programs send to Kafka, are of no known user.
    """

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}

    def change(self, user_id: str, requests: int, now: float) -> None:
        """That many more are open, or fewer if it is negative."""
        name = tenant_or_user(user_id)
        tenant = self._tenants.setdefault(name, _Tenant())
        tenant.put(user_id, max(0, self.open(user_id) + requests), now)
        if not tenant.users:
            del self._tenants[name]

    def open(self, user_id: str) -> int:
        tenant = self._tenants.get(tenant_or_user(user_id))
        known = None if tenant is None else tenant.users.get(user_id)
        return 0 if known is None else known.requests

    def ahead_of(self, user_id: str) -> int:
        """How many open requests begin before a new one of this user, if workers serve tenants and users in turn."""
        own, name = self.open(user_id), tenant_or_user(user_id)
        tenant = self._tenants.get(name)
        others = () if tenant is None else (one for user, one in tenant.users.items() if user != user_id)
        within = own + sum(min(one.requests, own + 1) for one in others)
        return within + sum(min(one.open, within + 1) for other, one in self._tenants.items() if other != name)

    def expire(self, now: float, idle_since: float | None) -> None:
        """`idle_since`: since when nothing has been open on the partition, None if something is."""
        oldest = now - _FORGET_S if idle_since is None else idle_since
        for tenant in self._tenants.values():
            for user_id in [user_id for user_id, one in tenant.users.items() if one.at < oldest]:
                tenant.put(user_id, 0, now)
        self._tenants = {name: tenant for name, tenant in self._tenants.items() if tenant.users}
