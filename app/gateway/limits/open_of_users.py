"""How many open requests each user of a partition has, as far as this gateway knows.

It counts requests that it has admitted until their answers end. Some never do: a request that was not sent after all,
or a dead letter. Such counts go when the partition has been idle, or when nothing of the user has happened for
`_FORGET_S`. Requests that were admitted elsewhere, or that programs send to Kafka,
are of no known user.
"""

from __future__ import annotations

from dataclasses import dataclass

_FORGET_S = 600.0


@dataclass(frozen=True, slots=True)
class _Open:
    """Open requests, and the monotonic time of the user's last change."""

    requests: int
    at: float


class OpenOfUsers:
    def __init__(self) -> None:
        self._users: dict[str, _Open] = {}

    def change(self, user_id: str, requests: int, now: float) -> None:
        """That many more are open, or fewer if it is negative."""
        count = self.open(user_id) + requests
        if count > 0:
            self._users[user_id] = _Open(count, now)
        else:
            self._users.pop(user_id, None)

    def open(self, user_id: str) -> int:
        known = self._users.get(user_id)
        return 0 if known is None else known.requests

    def ahead_of(self, user_id: str) -> int:
        """How many open requests begin before a new one of this user, if workers serve users in turn."""
        own = self.open(user_id)
        return sum(min(one.requests, own + 1) for name, one in self._users.items() if name != user_id) + own

    def expire(self, now: float, idle_since: float | None) -> None:
        """`idle_since`: since when nothing has been open on the partition, None if something is."""
        oldest = now - _FORGET_S if idle_since is None else idle_since
        self._users = {name: one for name, one in self._users.items() if one.at >= oldest}
