"""The servers of one outside model: which one is asked next, and which are left alone for a while.

A server has a circuit breaker:

    CLOSED --`MOST_FAILURES` in a row, or `Retry-After`--> OPEN --a probe succeeds--> CLOSED

An open server is asked nothing but `GET /models`, every few seconds. Requests therefore never pay for the probe.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from models.generation import ServerStats

log = logging.getLogger(__name__)

MOST_FAILURES = 3
_WEIGHT = 0.2  # of the newest latency in the average
_PROBE_S = 5.0
_MOST_OF_SHARE = 1.25
_SLOWEST, _WORTH_S = 2.0, 0.1
"""Twice as long as the quickest, and so much longer: what a cached conversation may be worth."""


class Circuit(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"


class Server:
    """`client` is an `openai.AsyncOpenAI`; `latency_s` the average time to the first token, `running` its answers."""

    def __init__(self, url: str, client: Any) -> None:
        self.url = url
        self.client = client
        self.circuit = Circuit.CLOSED
        self.latency_s = 0.0
        self.running = 0
        self.probe_at = 0.0  # monotonic seconds; not probed before
        self.failures = 0
        self._failures = 0  # in a row

    @property
    def stats(self) -> ServerStats:
        where = urlsplit(self.url)
        address = where._replace(netloc=where.netloc.rpartition("@")[2], query="", fragment="").geturl()
        return ServerStats(address, self.circuit is Circuit.CLOSED, self.running, self.failures, self.latency_s)

    def answered(self, seconds: float) -> None:
        """Its first token came after that time."""
        self._failures = 0
        self.latency_s = seconds if not self.latency_s else (1 - _WEIGHT) * self.latency_s + _WEIGHT * seconds

    def failed(self, why: str, *, rest_s: float = 0.0) -> None:
        """`rest_s`: the server asks to be left alone for so long."""
        self._failures += 1
        self.failures += 1
        if self.circuit is Circuit.CLOSED and (rest_s or self._failures >= MOST_FAILURES):
            self.circuit = Circuit.OPEN
            self.probe_at = time.monotonic() + rest_s
            log.warning("%s is left alone: %s", self.url, why)

    def recovered(self) -> None:
        self.circuit = Circuit.CLOSED
        self._failures = 0
        log.warning("%s answers again", self.url)


class Servers:
    """`max_running`: answers that one server gives at once."""

    def __init__(self, servers: Sequence[Server], max_running: int) -> None:
        self._all = servers
        self._max_running = max_running
        self._changed = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None

    @property
    def has_room(self) -> bool:
        return any(self._is_free(server) for server in self._all)

    @property
    def stats(self) -> tuple[ServerStats, ...]:
        return tuple(server.stats for server in self._all)

    @property
    def are_open(self) -> bool:
        """Whether no server is asked at the moment."""
        return all(server.circuit is Circuit.OPEN for server in self._all)

    async def enter(self, tried: Sequence[Server], patience_s: float, user: str = "") -> Server:
        """The user's own server, whose prefix cache has the conversation, unless it has more than its share to do, is
        slow or among `tried`; else the free server with the least expected latency, one that is not among `tried` if
        there is one.

        Raises `TimeoutError` if there is none for `patience_s` although none is busy.
        """
        deadline = time.monotonic() + patience_s
        while True:
            free = [server for server in self._all if self._is_free(server)]
            if free:
                quickest = min(free, key=lambda one: (one in tried, one.latency_s * (one.running + 1), one.running))
                server = self._home(free, tried, user, quickest.latency_s) or quickest
                server.running += 1
                return server
            if self.are_open and time.monotonic() > deadline:
                raise TimeoutError
            if not self.are_open:
                deadline = time.monotonic() + patience_s
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(0.05, deadline - time.monotonic()))

    def _home(self, free: Sequence[Server], tried: Sequence[Server], user: str, quickest_s: float) -> Server | None:
        """Users are spread by rendezvous hashing: one more server takes an equal part of each other's users, and no
        other user moves. Loads are bounded as in consistent hashing with bounded loads
        (https://arxiv.org/abs/1608.01350).
        """
        if not user or len(self._all) == 1:
            return None
        home = max(self._all, key=lambda one: blake2b(f"{user}\0{one.url}".encode(), digest_size=8).digest())
        most = ceil(_MOST_OF_SHARE * (sum(one.running for one in self._all) + 1) / len(self._all))
        is_slow = 0 < quickest_s < min(home.latency_s / _SLOWEST, home.latency_s - _WORTH_S)
        return home if home in free and home not in tried and home.running < most and not is_slow else None

    def leave(self, server: Server) -> None:
        server.running -= 1
        self._changed.set()
        if server.circuit is Circuit.OPEN and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe())

    async def stop(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        for server in self._all:
            await server.client.close()

    def _is_free(self, server: Server) -> bool:
        return server.circuit is Circuit.CLOSED and server.running < self._max_running

    async def _probe(self) -> None:
        """Until no server is open."""
        while resting := [server for server in self._all if server.circuit is Circuit.OPEN]:
            await asyncio.sleep(min(_PROBE_S, max(0.1, min(one.probe_at for one in resting) - time.monotonic())))
            due = [server for server in resting if time.monotonic() >= server.probe_at]
            await asyncio.gather(*map(_ask, due))
            self._changed.set()


async def _ask(server: Server) -> None:
    server.probe_at = time.monotonic() + _PROBE_S
    try:
        await server.client.with_options(timeout=_PROBE_S, max_retries=0).models.list()
    except Exception as error:  # noqa: BLE001 - whatever it is, the server does not answer
        log.debug("%s does not answer a probe: %s", server.url, error)
    else:
        server.recovered()
