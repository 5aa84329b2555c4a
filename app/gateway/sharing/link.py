"""The asking side: one WebSocket to another gateway, shared by all calls to it.

A call is a queue of the frames that answer it. A reader that is slower than its answer fills its queue; then the call
is closed, and opened again at the reader's position once it has caught up, so no reader costs more than `_MOST_EVENTS`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from ssl import SSLContext

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from app.gateway.sharing.frames import (
    PATH,
    Answered,
    Asked,
    Charge,
    Close,
    Closed,
    Events,
    Look,
    Open,
    Refused,
    Spend,
    decode_answered,
    encode,
)
from app.wire import TokenEvent

log = logging.getLogger(__name__)

CONNECT_S = 3.0
CALL_S = 5.0
_PING_S = 3.0
_MOST_EVENTS = 2000
_LARGEST = 64 * 1024 * 1024


class PeerAwayError(Exception):
    """The other gateway does not answer, or does not own the partition any more."""


@dataclass(slots=True)
class _Call:
    frames: asyncio.Queue[Answered | None] = field(default_factory=asyncio.Queue)
    events: int = 0
    overflows: bool = False


class Link:
    """Connects at the first call. After a failure it is dropped, and the next call makes another (links.py)."""

    def __init__(self, address: str, secret: str, tls: SSLContext | None, on_lost: Callable[[Link], None]) -> None:
        self.address = address
        self._secret = secret
        self._tls = tls
        self._on_lost = on_lost
        self._ids = count()
        self._calls: dict[int, _Call] = {}
        self._outbox: list[Asked] = []
        self._ready = asyncio.Event()
        self._lost = False
        self._serving = asyncio.create_task(self._serve(), name=f"link to {address}")

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

    async def charge(self, name: str, requests: int, *, is_tenant: bool) -> None:
        """Admit these requests by the owner's limits; raises `ApiError` or `PeerAwayError`."""
        with self._call(Charge(next(self._ids), name, requests, is_tenant)) as call:
            async with asyncio.timeout(CALL_S):
                await self._next(call)

    def spend(self, tokens: dict[str, int]) -> None:
        self._send(Spend(tokens))

    async def close(self) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)

    @contextmanager
    def _call(self, first: Open | Look | Charge) -> Iterator[_Call]:
        call = self._calls[first.id] = _Call()
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
            raise PeerAwayError(f"the connection to the gateway at {self.address} is lost")
        frame = await call.frames.get()
        if frame is None:
            return await self._next(call)
        if isinstance(frame, Refused):
            raise frame.error()
        if isinstance(frame, Closed) and frame.moved:
            raise PeerAwayError(f"{self.address} does not own the partition any more")
        return frame

    def _send(self, frame: Asked) -> None:
        self._outbox.append(frame)
        self._ready.set()

    async def _serve(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await connect(
                    f"ws{self.address.removeprefix('http')}{PATH}",
                    additional_headers={"Authorization": f"Bearer {self._secret}"},
                    ssl=self._tls,
                    compression=None,
                    max_size=_LARGEST,
                    ping_interval=_PING_S,
                    ping_timeout=_PING_S,
                    proxy=None,
                )
            async with connection, asyncio.TaskGroup() as both:
                both.create_task(self._write(connection))
                both.create_task(self._read(connection))
        except* (OSError, TimeoutError, WebSocketException) as errors:
            log.warning("the gateway at %s is away: %s", self.address, errors.exceptions[0])
        finally:
            self._lost = True
            self._on_lost(self)
            for call in self._calls.values():
                call.frames.put_nowait(None)

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
            if call.events > _MOST_EVENTS:
                call.overflows = True
                self._send(Close(frame.id))
                call.frames.put_nowait(None)
                return
        call.frames.put_nowait(frame)
