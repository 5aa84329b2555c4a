"""The asking side: one WebSocket to another gateway, shared by all calls to it.

A call is a queue of the frames that answer it. A reader that is slower than its answer fills its queue; then the call
is closed, and opened again at the reader's position once it has caught up, so no reader costs more than `_MOST_EVENTS`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from ssl import SSLContext
from typing import Protocol

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from app.gateway.sharing.frames import (
    Answered,
    Asked,
    Charge,
    Close,
    Closed,
    Events,
    GiveBack,
    Look,
    Open,
    Refused,
    Spend,
    decode_answered,
    encode,
)
from app.gateway.sharing.trust import RefusedError, Trust
from app.wire.event import TokenEvent

CONNECT_S = 3.0
CALL_S = 5.0
_PING_S = 3.0
_MOST_EVENTS = 2000
_LARGEST = 64 * 1024 * 1024


class PeerAwayError(Exception):
    """The other gateway does not answer, or does not own the partition any more."""


@dataclass(slots=True)
class _Call:
    """`most_events`: how many may wait for the reader; None where one frame is the whole reply."""

    most_events: int | None
    frames: asyncio.Queue[Answered | None] = field(default_factory=asyncio.Queue)
    events: int = 0
    overflows: bool = False


class LinkFollower(Protocol):
    """Who is told about a link's success and its end."""

    def succeeded(self, link: Link) -> None: ...

    def failed(self, link: Link, error: BaseException, *, is_refusal: bool) -> None: ...


class Link:
    """Connects at once. After a failure it is of no use; the next call makes another (links.py).

    `name`: the other gateway's PARLEY_GATEWAY_ADVERTISE; `address`: that of its port for gateways.
    """

    def __init__(self, name: str, address: str, trust: Trust, tls: SSLContext | None, follower: LinkFollower) -> None:
        self.name = name
        self.address = address
        self._trust = trust
        self._tls = tls
        self._follower = follower
        self._ids = count()
        self._calls: dict[int, _Call] = {}
        self._outbox: list[Asked] = []
        self._ready = asyncio.Event()
        self._lost = False
        self._serving = asyncio.create_task(self._serve(), name=f"link to {name}")

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

    async def look(self, user_id: str, request_id: str) -> list[TokenEvent]:
        """The answer's events so far; raises `ApiError` or `PeerAwayError`."""
        found: list[TokenEvent] = []
        with self._call(Look(next(self._ids), user_id, request_id)) as call:
            async with asyncio.timeout(CALL_S):
                while isinstance(frame := await self._next(call), Events):
                    found += frame.events
        return found

    async def charge(self, name: str, requests: int, answers: int, *, is_tenant: bool) -> None:
        """Admit these requests by the owner's limits; raises `ApiError` or `PeerAwayError`."""
        with self._call(Charge(next(self._ids), name, requests, is_tenant, answers)) as call:
            async with asyncio.timeout(CALL_S):
                await self._next(call)

    def give_back(self, name: str, requests: int) -> None:
        """Requests of a user that were charged on this link were not sent after all."""
        self._send(GiveBack(name, requests))

    def spend(self, tokens: dict[str, int]) -> None:
        self._send(Spend(tokens))

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    @contextmanager
    def _call(self, first: Open | Look | Charge) -> Iterator[_Call]:
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
        if isinstance(frame, Refused):
            raise frame.error()
        if isinstance(frame, Closed) and frame.moved:
            raise PeerAwayError(f"{self.name} does not own the partition any more")
        return frame

    def _send(self, frame: Asked) -> None:
        self._outbox.append(frame)
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
                self._follower.succeeded(self)
                await self._talk(connection)
        except (OSError, TimeoutError, WebSocketException, RefusedError, msgspec.DecodeError) as failure:
            error = failure
        finally:
            self._lost = True
            self._follower.failed(self, error, is_refusal=isinstance(error, RefusedError))
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
            frames, self._outbox = self._outbox, []
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
