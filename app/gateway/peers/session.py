"""The owner's side: serves the calls of one other gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Protocol

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from app.gateway.edge.errors import ApiError
from app.gateway.peers.admission import Admission
from app.gateway.peers.directory import Directory
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
    decode_asked,
    encode,
)
from app.reader import Answer
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent

log = logging.getLogger(__name__)

_EVENTS = 256
"""Of a whole answer, in one frame."""
_MOST_WAITING = 5000
"""Frames that wait to be written; beyond that, the answers wait."""


class LocalAnswers(Protocol):
    """Answers of users whose partitions this gateway owns (answers/follow.py)."""

    def is_local(self, user_id: str) -> bool: ...
    def local(
        self, user_id: str, request_id: str, after: int, *, sent: bool
    ) -> AsyncGenerator[list[TokenEvent], None]: ...
    async def local_answer(self, user_id: str, request_id: str) -> Answer | None: ...
    def local_ends(self, user_id: str) -> list[TokenEvent]: ...


class Session:
    def __init__(
        self, socket: ServerConnection, follower: LocalAnswers, directory: Directory, limits: Admission
    ) -> None:
        self._socket = socket
        self._follower = follower
        self._directory = directory
        self._limits = limits
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._unsent: list[Answered] = []
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
                if isinstance(error, msgspec.DecodeError):
                    log.warning("a gateway is not understood, and its calls end: %s", error)
                elif isinstance(error, Exception) and not isinstance(error, ConnectionClosed):
                    log.warning("the calls of a gateway end: %s", type(error).__name__, exc_info=error)

    async def _read(self) -> None:
        async for message in self._socket:
            for frame in decode_asked(message):
                self._handle(frame)

    def _handle(self, frame: Asked) -> None:
        match frame:
            case Open():
                self._begin(frame.id, self._follow(frame))
            case ReadAnswer():
                self._begin(frame.id, self._read_answer(frame))
            case Close():
                if (call := self._calls.pop(frame.id, None)) is not None:
                    call.cancel()
            case Charge():
                self._send(self._charge(frame))

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

    async def _read_answer(self, frame: ReadAnswer) -> None:
        if not self._follower.is_local(frame.user_id):
            self._send(Closed(frame.id, moved=True))
            return
        if frame.ends:
            self._send(Events(frame.id, self._follower.local_ends(frame.user_id)))
            self._send(Closed(frame.id))
            return
        try:
            answer = await self._follower.local_answer(frame.user_id, frame.request_id)
        except ApiError as error:
            self._send(_refused(frame.id, error))
            return
        if answer is not None:
            events = list(answer.events)
            for first in range(0, len(events), _EVENTS):
                await self._room()
                self._send(Events(frame.id, events[first : first + _EVENTS]))
                await asyncio.sleep(0)  # each batch is a message of its own, and other tasks run in between
        self._send(Closed(frame.id))

    def _charge(self, frame: Charge) -> Answered:
        if self._directory.elsewhere(frame.name):
            return Closed(frame.id, moved=True)
        try:
            self._limits.charge(frame.name, frame.requests, frame.answers)
        except ApiError as error:
            return _refused(frame.id, error)
        return Closed(frame.id)

    def _send(self, frame: Answered) -> None:
        self._unsent.append(frame)
        self._ready.set()

    async def _room(self) -> None:
        if len(self._unsent) > _MOST_WAITING:
            async with self._written:
                await self._written.wait()

    async def _write(self) -> None:
        try:
            while True:
                await self._ready.wait()
                self._ready.clear()
                frames, self._unsent = self._unsent, []
                await self._socket.send(encode(frames).decode())
                async with self._written:
                    self._written.notify_all()
        except ConnectionClosed:
            return  # it has left


def _refused(call_id: int, error: ApiError) -> CallRefused:
    return CallRefused(call_id, ErrorCode(error.code), error.message, error.retry_after_s)
