"""One WebSocket, with limits for what comes before a message is whole; messages: asking/reading.py.

A message above 64 KiB counts against the share of its caller's key while it arrives, and has to arrive in time. Frames
beside messages and tiny fragments are counted: each costs as much as a small message, and a ping is answered at once,
also to a peer that does not read. Such a connection is closed.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from app.gateway.edge.bodies import Bodies, Body
from app.gateway.edge.connections import Gate, read_little
from app.gateway.edge.errors import ApiError

MESSAGE_S = 30.0
MAX_CONTROL_FRAMES = 256
"""In `CONTROL_S`: each side sends one in 20 seconds."""
CONTROL_S = 30.0
MAX_FRAGMENTS = 1024
_READ_BYTES = 4 * 1024
"""Hundreds of tiny frames, which are parsed in one step."""
_LARGE_BYTES = 64 * 1024
_TOO_MUCH, _TOO_BIG, _AGAIN = 1008, 1009, 1013


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """A connection that became a WebSocket: it counts until it ends, and so does a large message until it is whole."""

    def __init__(self, *arguments: Any, gate: Gate, bodies: Bodies, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gate = gate
        self._bodies = bodies
        self._unfinished = 0
        self._held = ExitStack()
        self._body: Body | None = None
        self._frames = 0
        self._frames_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        read_little(transport, _READ_BYTES)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self.transport)
        self._finish()
        super().connection_lost(exc)

    async def send(self, message: Any) -> None:
        """Uvicorn waits before the next message only, and this one may be large. It logs an error behind a refusal that
        is an HTTP response, as if nothing had been sent.
        """
        await super().send(message)
        self.handshake_complete |= self.close_sent
        await self.writable.wait()

    def data_received(self, data: bytes) -> None:
        self._unfinished += len(data)
        super().data_received(data)
        if self._unfinished > _LARGE_BYTES:
            self._count(len(data))

    def send_receive_event_to_app(self) -> None:
        super().send_receive_event_to_app()
        self._finish()

    def handle_cont(self, event: Frame) -> None:
        super().handle_cont(event)
        if len(self.frames) > MAX_FRAGMENTS:
            self._fail(_TOO_BIG, "too many fragments")

    def handle_ping(self) -> None:
        super().handle_ping()
        self._control()

    def handle_pong(self, event: Frame) -> None:
        super().handle_pong(event)
        self._control()

    def _control(self) -> None:
        """A frame beside the messages: some keep a connection alive, many are a flood, and replies must be read."""
        if not self.frames:
            self._unfinished = 0
        now = self.loop.time()
        if now - self._frames_since > CONTROL_S:
            self._frames, self._frames_since = 0, now
        self._frames += 1
        if self._frames > MAX_CONTROL_FRAMES or not self.writable.is_set():
            self._fail(_TOO_MUCH, "too many control frames")

    def _count(self, size: int) -> None:
        """Count an unfinished message against the share of its caller."""
        try:
            if self._body is None:
                caller = self.scope["state"].get("caller")
                self._body = self._held.enter_context(self._bodies.body("" if caller is None else caller.holder))
                deadline = self.loop.call_later(MESSAGE_S, self._fail, _TOO_MUCH, "the message does not end")
                self._held.callback(deadline.cancel)
                size = self._unfinished
            self._body.add(size)
        except ApiError as error:
            self._fail(_AGAIN, error.message)

    def _finish(self) -> None:
        self._unfinished = 0
        self._body = None
        self._held.close()

    def _fail(self, code: int, reason: str) -> None:
        self._finish()
        if self.close_sent:
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()
