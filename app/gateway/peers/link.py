"""The asking side: one WebSocket to each other gateway, shared by all calls to it.

A call is a queue of the frames that answer it. A reader that is slower than its answer fills its queue; then the call
is closed, and opened again at the reader's position once it has caught up, so no reader costs more than `_MOST_EVENTS`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from ssl import SSLContext

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.peers.frames import (
    Answered,
    Asked,
    CallRefused,
    Charge,
    Close,
    Closed,
    Events,
    Open,
    ReadAnswer,
    decode_answered,
    encode,
)
from app.gateway.peers.trust import Trust, UnknownPeerError
from app.wire.event import TokenEvent
from app.wire.ids import new_request_id

log = logging.getLogger(__name__)

CONNECT_S = 3.0
CALL_S = 5.0
_PING_S = 3.0
_MOST_EVENTS = 2000
_LARGEST = 64 * 1024 * 1024
_SHORTEST_S = 0.2
_LONGEST_S = 2.0


class PeerAwayError(Exception):
    """The other gateway does not answer, or does not own the partition any more."""


@dataclass(slots=True)
class _Call:
    """`most_events`: how many may wait for the reader; None where one frame is the whole reply."""

    most_events: int | None
    frames: asyncio.Queue[Answered | None] = field(default_factory=asyncio.Queue)
    events: int = 0
    overflows: bool = False


class Link:
    """Connects at once. After a failure it is of no use; the next call makes another.

    `name`: the other gateway's PARLEY_GATEWAY_ADVERTISE; `address`: that of its port for gateways.
    """

    def __init__(self, name: str, address: str, trust: Trust, tls: SSLContext | None, links: Links) -> None:
        self.name = name
        self.address = address
        self._trust = trust
        self._tls = tls
        self._links = links
        self._ids = count()
        self._calls: dict[int, _Call] = {}
        self._unsent: list[Asked] = []
        self._ready = asyncio.Event()
        self._lost = False
        self._task = asyncio.create_task(self._serve(), name=f"link to {name}")

    async def follow(
        self, user_id: str, request_id: str, after: int, *, sent: bool
    ) -> AsyncGenerator[list[TokenEvent], None]:
        """The answer's events from `after` on; an empty batch is a keep-alive. Ends with the answer, or early if the
        reader should open it again. Raises `ApiError` or `PeerAwayError`.
        """
        with self._call(Open(next(self._ids), user_id, request_id, after, sent)) as call:
            while (frame := await self._next(call)) is not None:
                if isinstance(frame, Events):
                    call.events -= len(frame.events)
                    yield frame.events
                else:
                    return

    async def read_answer(self, user_id: str, request_id: str) -> list[TokenEvent]:
        """The answer's events so far; raises `ApiError` or `PeerAwayError`."""
        return await self._events(ReadAnswer(next(self._ids), user_id, request_id))

    async def read_ends(self, user_id: str) -> set[str]:
        """The requests of the user whose answers have ended lately; raises `ApiError` or `PeerAwayError`."""
        ends = await self._events(ReadAnswer(next(self._ids), user_id, new_request_id(), ends=True))
        return {event.request_id for event in ends if event.request_id is not None}

    async def _events(self, asked: ReadAnswer) -> list[TokenEvent]:
        events: list[TokenEvent] = []
        with self._call(asked) as call:
            async with asyncio.timeout(CALL_S):
                while isinstance(frame := await self._next(call), Events):
                    events += frame.events
        return events

    async def charge(self, user_id: str, requests: int, answers: int) -> None:
        """Admit these requests by the owner's limits; raises `ApiError` or `PeerAwayError`."""
        with self._call(Charge(next(self._ids), user_id, requests, answers)) as call:
            async with asyncio.timeout(CALL_S):
                await self._next(call)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @contextmanager
    def _call(self, first: Open | ReadAnswer | Charge) -> Iterator[_Call]:
        call = self._calls[first.id] = _Call(_MOST_EVENTS if isinstance(first, Open) else None)
        try:
            self._send(first)
            yield call
        finally:
            if self._calls.pop(first.id, None) is not None and isinstance(first, Open):
                self._send(Close(first.id))

    async def _next(self, call: _Call) -> Answered | None:
        """The call's next frame; None if the reader has fallen behind. Raises `PeerAwayError`, or the `ApiError` that
        the owner has refused the call with.
        """
        if call.overflows and call.frames.empty():
            return None
        if self._lost and call.frames.empty():
            raise PeerAwayError(f"the connection to the gateway at {self.name} is lost")
        frame = await call.frames.get()
        if frame is None:
            return await self._next(call)
        if isinstance(frame, CallRefused):
            raise frame.error()
        if isinstance(frame, Closed) and frame.moved:
            raise PeerAwayError(f"{self.name} does not own the partition any more")
        return frame

    def _send(self, frame: Asked) -> None:
        self._unsent.append(frame)
        self._ready.set()

    async def _serve(self) -> None:
        error: BaseException = ConnectionError("this gateway has closed the link")
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await connect(
                    f"ws{self.address.removeprefix('http')}",
                    ssl=self._tls,
                    compression=None,
                    max_size=_LARGEST,
                    ping_interval=_PING_S,
                    ping_timeout=_PING_S,
                    proxy=None,
                )
            async with connection:
                await self._trust.ask(connection, self.name)
                self._links.succeeded(self)
                await self._talk(connection)
        except (OSError, TimeoutError, WebSocketException, UnknownPeerError, msgspec.DecodeError) as failure:
            error = failure
        finally:
            self._lost = True
            self._links.failed(self, error, is_refusal=isinstance(error, UnknownPeerError))
            for call in self._calls.values():
                call.frames.put_nowait(None)

    async def _talk(self, connection: ClientConnection) -> None:
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._write(connection))
                both.create_task(self._read(connection))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _write(self, connection: ClientConnection) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            frames, self._unsent = self._unsent, []
            await connection.send(encode(frames).decode())

    async def _read(self, connection: ClientConnection) -> None:
        async for message in connection:
            for frame in decode_answered(message):
                self._deliver(frame)
        raise ConnectionError("it has closed the connection")

    def _deliver(self, frame: Answered) -> None:
        call = self._calls.get(frame.id)
        if call is None or call.overflows:
            return
        if isinstance(frame, Events):
            call.events += len(frame.events)
            if call.most_events is not None and call.events > call.most_events:
                call.overflows = True
                self._send(Close(frame.id))
                call.frames.put_nowait(None)
                return
        call.frames.put_nowait(frame)


@dataclass(frozen=True, slots=True)
class _Failure:
    """`until`: when the next link may be made, in the loop's time."""

    until: float
    delay_s: float
    is_refusal: bool


class Links:
    """The links of this gateway to the others, by name.

    A link that failed is made again by the next call, but not at once: a gateway that is away, or that refuses this
    one, is tried less and less often, up to every `_LONGEST_S`. The first failure is logged, and the first success
    after it.
    """

    def __init__(self, trust: Trust, tls: SSLContext | None, metrics: GatewayMetrics) -> None:
        self._trust = trust
        self._tls = tls
        self._metrics = metrics
        self._addresses: dict[str, str] = {}
        self._links: dict[str, Link] = {}
        self._failures: dict[str, _Failure] = {}

    @property
    def refused(self) -> bool:
        """Whether every other gateway refuses this one, or is refused by it."""
        failures = [self._failures.get(name) for name in self._addresses]
        return bool(failures) and all(one is not None and one.is_refusal for one in failures)

    def to(self, name: str) -> Link:
        """Raises `PeerAwayError` while it is too early to try again."""
        if (link := self._links.get(name)) is not None:
            return link
        failure = self._failures.get(name)
        address = self._addresses.get(name)
        if address is None or (failure is not None and asyncio.get_running_loop().time() < failure.until):
            raise PeerAwayError(f"the gateway at {name} is away")
        link = self._links[name] = Link(name, address, self._trust, self._tls, self)
        return link

    async def keep(self, addresses: Mapping[str, str]) -> None:
        """Link to these gateways, by name, at the addresses of their ports; close the links to those that left."""
        gone = [self._links.pop(name) for name in self._links.keys() - addresses.keys()]
        moved = [self._links.pop(name) for name, link in list(self._links.items()) if link.address != addresses[name]]
        self._addresses = dict(addresses)
        self._failures = {name: one for name, one in self._failures.items() if name in addresses}
        await asyncio.gather(*(link.close() for link in (*gone, *moved)))
        for name in self._addresses.keys() - self._failures.keys():
            self.to(name)

    async def close(self) -> None:
        await self.keep({})

    def succeeded(self, link: Link) -> None:
        """Both ends of the link have proved that they have the secret."""
        if self._failures.pop(link.name, None) is not None:
            log.warning("the gateway at %s is linked again", link.name)

    def failed(self, link: Link, error: BaseException, *, is_refusal: bool) -> None:
        """The link has ended by itself; calls that need it are refused, and try again."""
        if self._links.get(link.name) is not link:
            return  # this gateway has closed it
        del self._links[link.name]
        before = self._failures.get(link.name)
        if is_refusal:
            self._metrics.refused_links.labels("asking").inc()
        if before is None or before.is_refusal is not is_refusal:
            self._log(link, error, is_refusal=is_refusal)
        delay_s = _SHORTEST_S if before is None else min(2 * before.delay_s, _LONGEST_S)
        until = asyncio.get_running_loop().time() + delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._failures[link.name] = _Failure(until, delay_s, is_refusal)

    def _log(self, link: Link, error: BaseException, *, is_refusal: bool) -> None:
        if is_refusal:
            log.error(
                "the gateway at %s is refused: %s; compare PARLEY_GATEWAY_PEER_SECRET, and who may join the group of "
                "gateways in Kafka",
                link.name,
                error,
            )
        else:
            log.warning("the gateway at %s is away: %s", link.name, error)
