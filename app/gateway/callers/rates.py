"""Rate limits of users: requests and tokens per minute, and, of one gateway, look-ups and open streams.

Gateways that share the partitions keep the requests and tokens of a user at the owner of the user's partition
(peers/admission.py), so these limits hold however many gateways there are. Those of tenants are the policy's
(asking/tenants.py).
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from app.gateway.callers.identity import Identity
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError
from app.gateway.edge.metrics import GatewayMetrics
from app.settings import Settings
from app.wire.error import ErrorCode

_MOST_USERS = 100_000


class RateLimits:
    def __init__(self, settings: Settings, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._streams: Counter[str] = Counter()
        self._sockets: Counter[str] = Counter()
        self._followed: Counter[str] = Counter()
        self._lookups = Buckets(settings.gateway_requests_per_min, "look-ups")
        self._erasures = Buckets(bounds.ERASURES_PER_MIN, "erasures")
        self._conversation_erasures = Buckets(bounds.CONVERSATION_ERASURES_PER_MIN, "deletions of conversations")
        self._erasures_of_a_day = Buckets(bounds.CONVERSATION_ERASURES_PER_DAY, "deletions of conversations", Per.DAY)
        self._requests = Buckets(settings.gateway_requests_per_min, "requests")
        self._tokens = Buckets(settings.gateway_tokens_per_min, "tokens")
        self._bodies = Buckets(settings.gateway_requests_per_min, "bodies of this key that are refused")

    def charge_body(self, holder: str) -> None:
        """Charge the holder of a key for a body before it is decoded; raises `ApiError`."""
        self._bodies.check(holder)
        self._bodies.spend(holder, 1)

    def return_body(self, holder: str) -> None:
        """The body is good: from here on, the limits of its user count it."""
        self._bodies.spend(holder, -1)

    def count_refused(self, holder: str) -> None:
        """A body of the holder was decoded, and what it asks is refused."""
        self._bodies.spend(holder, 1)

    def admit_user(self, user_id: str, requests: int) -> None:
        """Admit that many requests of the user, all or none; raises `ApiError`."""
        self._tokens.check(user_id)
        self._requests.check(user_id, requests)
        self._requests.spend(user_id, requests)

    def admit_lookup(self, identity: Identity) -> None:
        """Admit one look-up; raises `ApiError`."""
        self._lookups.check(identity.user_id)
        self._lookups.spend(identity.user_id, 1)

    def erase(self, identity: Identity) -> None:
        """Admit one erasure; raises `ApiError`."""
        self.admit_lookup(identity)
        self._erasures.check(identity.user_id)
        self._erasures.spend(identity.user_id, 1)

    def erase_conversation(self, identity: Identity) -> None:
        """Admit the erasure of one conversation; raises `ApiError`."""
        self.admit_lookup(identity)
        both = (self._conversation_erasures, self._erasures_of_a_day)
        for erasures in both:
            erasures.check(identity.user_id)
        for erasures in both:
            erasures.spend(identity.user_id, 1)

    def count_tokens(self, user_id: str, tokens: int) -> None:
        """Count generated tokens of the user; the level may become negative."""
        self._tokens.spend(user_id, tokens)

    def open_stream(self, identity: Identity) -> None:
        user_id = identity.user_id
        if self._streams[user_id] >= bounds.STREAMS_OF_USER:
            raise ApiError(
                ErrorCode.RATE_LIMITED, f"{self._streams[user_id]} streams are open already", retry_after_s=5
            )
        self._streams[user_id] += 1
        self._metrics.streams.inc()

    def close_stream(self, identity: Identity) -> None:
        self._metrics.streams.dec()
        _less(self._streams, identity.user_id)

    def follow(self, holder: str, identity: Identity) -> None:
        """Open a stream on a WebSocket of that key; raises `ApiError`."""
        if self._followed[holder] >= bounds.FOLLOWED_BY_KEY:
            message = f"{self._followed[holder]} answers are followed by this key already"
            raise ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=5)
        self.open_stream(identity)
        self._followed[holder] += 1

    def unfollow(self, holder: str, identity: Identity) -> None:
        self.close_stream(identity)
        _less(self._followed, holder)

    @contextmanager
    def socket(self, holder: str) -> Iterator[None]:
        """Hold one WebSocket of that key while it is open; raises `ApiError`."""
        if self._sockets[holder] >= bounds.SOCKETS_OF_KEY:
            message = f"{self._sockets[holder]} WebSockets are open already"
            raise ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=5)
        self._sockets[holder] += 1
        try:
            yield
        finally:
            _less(self._sockets, holder)


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


class Per(Enum):
    """In seconds."""

    MINUTE = 60
    DAY = 86_400


class Buckets:
    """Token buckets: a rate for each user, with a burst of what is allowed in that time.

    A user that is not in the table has a full bucket. The least recently used entries are dropped first.
    """

    def __init__(self, most: int, what: str, per: Per = Per.MINUTE) -> None:
        self._most = most
        self._what = what
        self._per = per
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, user_id: str, amount: float = 1.0) -> None:
        """Raise `ApiError`, with the time to wait, if the bucket holds less than that."""
        if not self._most:
            return
        level = self._level(user_id)
        if level < amount:
            wait_s = (amount - level) * self._per.value / self._most
            message = f"more than {self._most} {self._what} per {self._per.name.lower()}"
            raise ApiError(ErrorCode.RATE_LIMITED, message, retry_after_s=wait_s)

    def spend(self, user_id: str, amount: float) -> None:
        """Take that much; the level may become negative."""
        if self._most:
            self._put(user_id, self._level(user_id) - amount)

    def _level(self, user_id: str) -> float:
        level, at = self._levels.get(user_id, (float(self._most), 0.0))
        return min(self._most, level + (time.monotonic() - at) * self._most / self._per.value)

    def _put(self, user_id: str, level: float) -> None:
        self._levels[user_id] = (level, time.monotonic())
        self._levels.move_to_end(user_id)
        if len(self._levels) > _MOST_USERS:
            self._levels.popitem(last=False)
