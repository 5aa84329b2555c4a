"""The limit of each user of a tenant: how many requests they have had admitted in the last minute.

A user is one partition, and so one worker, which counts alone and at once. It counts in memory: after a take-over the
next owner begins with nothing, so a user may have up to twice the limit in the minute around it. A worker that loses
the partition and has it back decides again about requests of which nothing was written; each counts once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from parley_client.plugins import Feature, RateLimited, Sender

_MINUTE_S = 60.0


class UserLimit(Feature):
    """Its setting is `limits`: the requests per minute of each user of a tenant, by the tenant's name, None for no
    limit. "*" is everybody else.
    """

    blocks = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._limits: dict[str, int | None] = dict(settings["limits"])
        self.rates = UserRates()

    async def admit(self, sender: Sender) -> None:
        limit = self._limits.get(sender.tenant or "", self._limits.get("*"))
        if limit is not None and not self.rates.admit(sender.user_id, sender.request_id, limit):
            raise RateLimited(f"this user has used its {limit} requests per minute")

    def figures(self) -> Mapping[str, float]:
        return {"users": len(self.rates)}


class UserRates:
    """`now` is in seconds. Users without a request in the last minute take no memory."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        # The user with the oldest last request first; of each user the requests and their times, oldest first.
        self._admitted: dict[str, dict[str, float]] = {}

    def admit(self, user_id: str, request_id: str, limit: int) -> bool:
        """Whether the user may have this request; counts it if so."""
        now = self._now()
        self._forget(now - _MINUTE_S)
        admitted = self._admitted.get(user_id, {})
        while admitted and admitted[oldest := next(iter(admitted))] <= now - _MINUTE_S:
            del admitted[oldest]
        if request_id in admitted:
            return True
        if len(admitted) >= limit:
            return False
        admitted[request_id] = now
        self._admitted.pop(user_id, None)
        self._admitted[user_id] = admitted
        return True

    def __len__(self) -> int:
        return len(self._admitted)

    def _forget(self, since: float) -> None:
        while self._admitted:
            user_id, admitted = next(iter(self._admitted.items()))
            if any(at > since for at in reversed(admitted.values())):
                return
            del self._admitted[user_id]
