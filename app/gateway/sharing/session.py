"""The owner's side: serves the calls of one other gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

from starlette.websockets import WebSocket, WebSocketDisconnect

from app.gateway.answers.follow import Follower
from app.gateway.errors import ApiError
from app.gateway.sharing.directory import Directory
from app.gateway.sharing.frames import (
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
    decode_asked,
    encode,
)
from app.wire import ErrorCode

log = logging.getLogger(__name__)

_MOST_WAITING = 5000
"""Frames that wait to be written; beyond that, the answers wait."""


class Charged(Protocol):
    """The limits of the users and tenants that this gateway owns; raises `ApiError`."""

    def charge(self, name: str, requests: int, *, is_tenant: bool) -> None: ...

    def spend(self, tenant: str, tokens: int) -> None: ...


class Session:
    def __init__(self, socket: WebSocket, follower: Follower, directory: Directory, charged: Charged) -> None:
        self._socket = socket
        self._follower = follower
        self._directory = directory
        self._charged = charged
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._outbox: list[Answered] = []
        self._ready = asyncio.Event()
        self._written = asyncio.Condition()

    async def serve(self) -> None:
        """Serve until the other gateway leaves."""
        writing = asyncio.create_task(self._write(), name="answers to a gateway")
        reading = asyncio.create_task(self._read(), name="calls of a gateway")
        try:
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = [writing, reading, *self._calls.values()]
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            for error in ended[:2]:
                if isinstance(error, Exception) and not isinstance(error, WebSocketDisconnect):
                    log.warning("a gateway is not understood, and its calls end: %r", error)

    async def _read(self) -> None:
        while (message := await self._socket.receive())["type"] == "websocket.receive":
            for frame in decode_asked(message.get("text") or message.get("bytes") or "[]"):
                self._do(frame)

    def _do(self, frame: Asked) -> None:
        match frame:
            case Open():
                self._begin(frame.id, self._follow(frame))
            case Look():
                self._begin(frame.id, self._look(frame))
            case Close():
                if (call := self._calls.pop(frame.id, None)) is not None:
                    call.cancel()
            case Charge():
                self._send(self._charge(frame))
            case Spend():
                for tenant, tokens in frame.tokens.items():
                    self._charged.spend(tenant, tokens)

    def _begin(self, call_id: int, work: Coroutine[Any, Any, None]) -> None:
        call = self._calls[call_id] = asyncio.create_task(work, name="call of a gateway")
        call.add_done_callback(lambda done: self._calls.pop(call_id, None) if done is call else None)

    async def _follow(self, frame: Open) -> None:
        if not self._follower.is_local(frame.user_id):
            self._send(Closed(frame.id, moved=True))
            return
        has_ended = False
        events = self._follower.local(frame.user_id, frame.request_id, frame.after, sent=frame.sent)
        try:
            async for batch in events:
                await self._room()
                has_ended = bool(batch) and batch[-1].is_end
                self._send(Events(frame.id, batch))
        except ApiError as error:
            self._send(_refused(frame.id, error))
            return
        finally:
            await events.aclose()
        self._send(Closed(frame.id, moved=not has_ended))

    async def _look(self, frame: Look) -> None:
        if not self._follower.is_local(frame.user_id):
            self._send(Closed(frame.id, moved=True))
            return
        try:
            answer = await self._follower.local_answer(frame.user_id, frame.request_id)
        except ApiError as error:
            self._send(_refused(frame.id, error))
            return
        if answer is not None:
            events = [*answer.segments, *((answer.end,) if answer.end is not None else ())]
            self._send(Events(frame.id, events))
        self._send(Closed(frame.id))

    def _charge(self, frame: Charge) -> Answered:
        if self._directory.elsewhere(frame.name):
            return Closed(frame.id, moved=True)
        try:
            self._charged.charge(frame.name, frame.requests, is_tenant=frame.is_tenant)
        except ApiError as error:
            return _refused(frame.id, error)
        return Closed(frame.id)

    def _send(self, frame: Answered) -> None:
        self._outbox.append(frame)
        self._ready.set()

    async def _room(self) -> None:
        if len(self._outbox) > _MOST_WAITING:
            async with self._written:
                await self._written.wait()

    async def _write(self) -> None:
        try:
            while True:
                await self._ready.wait()
                self._ready.clear()
                frames, self._outbox = self._outbox, []
                await self._socket.send_text(encode(frames).decode())
                async with self._written:
                    self._written.notify_all()
        except (RuntimeError, WebSocketDisconnect):
            return  # it has left


def _refused(call_id: int, error: ApiError) -> Refused:
    return Refused(call_id, ErrorCode(error.code), error.message, error.retry_after_s)
