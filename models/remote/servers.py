"""The servers of one outside model: which one is asked next, and which are left alone for a while.

A server has a circuit breaker:

    CLOSED --`MOST_FAILURES` in a row, or `Retry-After`--> OPEN --a probe succeeds--> CLOSED

An open server is asked nothing but `GET /models`, every few seconds. Requests therefore never pay for the probe.

One user's prompts take no server from the others. A server that cannot be reached is away, whoever finds out. Other
failures may be those of one prompt, so they count once for a request, not at all for one that fails at another server,
too, and open the circuit if they are those of two users. If one user alone has so many, he waits for a probe, which
decides: a server that is down is noticed by a lone user as well.
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

from models.interface.generation import ServerStats

log = logging.getLogger(__name__)

MOST_FAILURES = 3
_FEWEST_USERS = 2
_MOST_KEPT = 64
_MOST_NOTES = 32
_WEIGHT = 0.2  # of the newest latency in the average
_PROBE_S = 5.0
_ABSENT = {400, 404, 405, 501}
_MOST_OF_SHARE = 1.25
_SLOWEST, _WORTH_S = 2.0, 0.1
"""Twice as long as the quickest, and so much longer: what a cached conversation may be worth."""


class Circuit(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"


class ModelServer:
    """`client` is an `openai.AsyncOpenAI`; `latency_s` the average time to the first token, `running` its answers."""

    def __init__(self, url: str, client: Any) -> None:
        self.url = url
        self.client = client
        self.circuit = Circuit.CLOSED
        self.latency_s = 0.0
        self.running = 0
        self.probe_at = 0.0  # monotonic seconds; not probed before
        self.failures = 0
        self._in_row = 0
        self._unreached = 0  # in a row
        self._users: dict[str, str] = {}  # of the requests that failed in a row, by their ids
        self._notes: set[str] = set()

    @property
    def address(self) -> str:
        """The URL without its secrets."""
        where = urlsplit(self.url)
        return where._replace(netloc=where.netloc.rpartition("@")[2], query="", fragment="").geturl()

    @property
    def stats(self) -> ServerStats:
        return ServerStats(self.address, self.circuit is Circuit.CLOSED, self.running, self.failures, self.latency_s)

    @property
    def is_suspect(self) -> bool:
        """Whether it has failed so often that a probe should decide, unless one has just done so."""
        is_due = self.circuit is Circuit.CLOSED and self._in_row >= MOST_FAILURES
        return is_due and time.monotonic() >= self.probe_at

    def note(self, what: str) -> None:
        """It writes a shape of its own; the log says so once."""
        if what not in self._notes and len(self._notes) < _MOST_NOTES:
            self._notes.add(what)
            log.warning("%s writes %s, which is not OpenAI's form; it is read all the same", self.address, what)

    def answered(self, seconds: float) -> None:
        """Its first token came after that time."""
        self._forget()
        self.latency_s = seconds if not self.latency_s else (1 - _WEIGHT) * self.latency_s + _WEIGHT * seconds

    def failed(self, why: str, *, request: str = "", user: str = "", is_unreachable: bool = False) -> None:
        """In this request of this user; an empty name is another one each time."""
        self.failures += 1
        self._in_row += 1
        if is_unreachable:
            self._unreached += 1
        else:
            request = request or str(self.failures)
            self._users[request] = user or request
            if len(self._users) > _MOST_KEPT:
                del self._users[next(iter(self._users))]
        is_of_several = len(set(self._users.values())) >= _FEWEST_USERS
        if self._unreached >= MOST_FAILURES or (is_of_several and len(self._users) + self._unreached >= MOST_FAILURES):
            self.open(why)

    def excuse(self, request: str) -> None:
        """The request has failed at another server, too."""
        self._users.pop(request, None)

    def open(self, why: str, rest_s: float = 0.0) -> None:
        """`rest_s`: the server asks to be left alone for so long."""
        if self.circuit is Circuit.CLOSED:
            self.circuit = Circuit.OPEN
            self.probe_at = time.monotonic() + rest_s
            log.warning("%s is left alone: %s", self.address, why)

    def probed(self, *, answers: bool) -> None:
        if not answers:
            self.open("it does not answer a probe")
        elif self.circuit is Circuit.OPEN:
            self.circuit = Circuit.CLOSED
            self._forget()
            log.warning("%s answers again", self.address)
        else:
            self._in_row = self._unreached = 0

    def _forget(self) -> None:
        self._in_row = self._unreached = 0
        self._users.clear()


class Servers:
    """`max_running`: answers that one server gives at once."""

    def __init__(self, servers: Sequence[ModelServer], max_running: int) -> None:
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

    async def enter(self, tried: Sequence[ModelServer], patience_s: float, user: str = "") -> ModelServer:
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

    def _home(
        self, free: Sequence[ModelServer], tried: Sequence[ModelServer], user: str, quickest_s: float
    ) -> ModelServer | None:
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

    def leave(self, server: ModelServer) -> None:
        server.running -= 1
        self._changed.set()
        self._watch()

    async def check(self, server: ModelServer) -> None:
        """Ask a server that is suspect whether it answers at all."""
        await probe(server)
        self._watch()

    async def stop(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        for server in self._all:
            await server.client.close()

    def _is_free(self, server: ModelServer) -> bool:
        return server.circuit is Circuit.CLOSED and server.running < self._max_running

    def _watch(self) -> None:
        is_probing = self._probing is not None and not self._probing.done()
        if not is_probing and any(server.circuit is Circuit.OPEN for server in self._all):
            self._probing = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        """Until no server is open."""
        while resting := [server for server in self._all if server.circuit is Circuit.OPEN]:
            await asyncio.sleep(min(_PROBE_S, max(0.1, min(one.probe_at for one in resting) - time.monotonic())))
            due = [server for server in resting if time.monotonic() >= server.probe_at]
            await asyncio.gather(*map(probe, due))
            self._changed.set()


async def probe(server: ModelServer) -> None:
    """Ask whether the server answers at all; one without `/models` does, by saying so."""
    server.probe_at = time.monotonic() + _PROBE_S
    try:
        async with asyncio.timeout(_PROBE_S):
            await server.client.with_options(timeout=_PROBE_S, max_retries=0).models.list()
    except Exception as error:  # noqa: BLE001 - whatever it is, the server does not answer
        log.debug("%s does not answer a probe: %s", server.address, type(error).__name__)
        server.probed(answers=getattr(error, "status_code", None) in _ABSENT)
    else:
        server.probed(answers=True)
