"""One WebSocket connection: the client's messages, and the answers that it follows.

Nothing is queued for a reader: each followed answer waits for its turn to write, so a connection holds at most one
batch of each. A client that accepts no data for a while is disconnected.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeAlias

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from app.gateway.asking.answer_stream import LARGEST_INDEX
from app.gateway.asking.ask import AskBody
from app.gateway.asking.gateway import Gateway
from app.gateway.asking.reading import read_message
from app.gateway.callers.identity import Identity
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError, error_of
from app.gateway.edge.slow_readers import unsent
from app.wire.error import ErrorCode
from app.wire.event import TokenEvent
from app.wire.ids import REQUEST_ID_FORM, is_request_id

TOO_SLOW = 1013
RESTARTS = 1012
FAILED = 1011
UNAUTHORIZED = 3000
GONE = 1006
_CLOSE_S = 1.0

_Key = tuple[str, str]
_encoder = msgspec.json.Encoder()


class AskMessage(AskBody, frozen=True, kw_only=True, tag_field="type", tag="ask"):
    ref: str | None = None


class _About(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message about an existing request."""

    request_id: str
    ref: str | None = None
    user_id: str | None = None


class FollowMessage(_About, frozen=True, kw_only=True, tag="follow"):
    starting_after: int = 0


class UnfollowMessage(_About, frozen=True, kw_only=True, tag="unfollow"):
    pass


class CancelMessage(_About, frozen=True, kw_only=True, tag="cancel"):
    pass


Message: TypeAlias = AskMessage | FollowMessage | UnfollowMessage | CancelMessage
AnyMessage: TypeAlias = Message | AskBody
"""A page of the policy has messages of its own, which ask."""


def _check(message: AnyMessage) -> None:
    """Raises `ApiError`."""
    if isinstance(message, AskBody):
        return
    if not is_request_id(message.request_id):
        raise _wrong(f"request_id: must be {REQUEST_ID_FORM}", "request_id")
    if isinstance(message, FollowMessage) and not 0 <= message.starting_after <= LARGEST_INDEX:
        raise _wrong("starting_after: must be the position after an event", "starting_after")


def _wrong(message: str, param: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message, param=param)


class Channel:
    """`async with Channel(gateway, socket, holder) as channel: await channel.serve()`."""

    def __init__(self, gateway: Gateway, socket: WebSocket, holder: str) -> None:
        """`holder`: the subject of the key with which it was opened."""
        self.kind: Any = Message
        self._gateway = gateway
        self._holder = holder
        self._socket = socket
        self._following: dict[_Key, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._ending = asyncio.Event()
        self._code = RESTARTS

    async def serve(self, valid_s: float | None = None) -> None:
        """Serve until the client leaves or stalls, an answer cuts it, the gateway stops, or `valid_s` seconds have
        passed.
        """
        receiving = asyncio.create_task(self._receive(), name="messages of a socket")
        ending = asyncio.create_task(self._ending.wait(), name="end of a socket")
        try:
            done, _ = await asyncio.wait({receiving, ending}, timeout=valid_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self._code = UNAUTHORIZED
        finally:
            receiving.cancel()
            ending.cancel()
            await asyncio.gather(receiving, ending, return_exceptions=True)
        if not receiving.cancelled():
            receiving.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        tasks = list(self._following.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._code == TOO_SLOW:
            self._gateway.metrics.stalled.inc()
        if self._socket.client_state is not WebSocketState.CONNECTED:
            return
        code = self._code if kind is None else FAILED
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._socket.close(code)
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            return  # it is gone or accepts no data; the server closes the connection

    async def _receive(self) -> None:
        """Serve the client's messages until it leaves."""
        with suppress(WebSocketDisconnect):
            await self._serve_messages()

    async def _serve_messages(self) -> None:
        while (frame := await self._socket.receive())["type"] == "websocket.receive":
            ref, message = None, None
            try:
                raw = frame.get("text") or frame.get("bytes") or ""
                message, ignored = await read_message(self._gateway, self._holder, raw, self.kind)
                ref = getattr(message, "ref", None)
                _check(message)
                await self._handle(message, ignored)
                self._gateway.limits.return_body(self._holder)
            except ApiError as error:
                await self._refuse(ref, message, error)
            except WebSocketDisconnect:
                raise
            except Exception as failure:  # noqa: BLE001 - what one message holds ends no other answer
                await self._refuse(ref, message, error_of(failure, "a message of a WebSocket"))

    async def _refuse(self, ref: str | None, message: AnyMessage | None, error: ApiError) -> None:
        self._gateway.audit_trail.denied(self._socket, error)
        reply: dict[str, Any] = {"type": "refused", "ref": ref, **error.body}
        if message is not None and is_request_id(message.request_id):
            reply["request_id"] = message.request_id
        if error.retry_after_s is not None:
            reply["retry_after_s"] = round(error.retry_after_s, 1)
        await self._send(reply)

    async def _handle(self, message: AnyMessage, ignored: list[str]) -> None:
        caller = await self._gateway.access.caller(self._socket)
        identity = caller.identity(message.user_id)
        if isinstance(message, AskBody):
            return await self._ask(message, identity, caller.conversation, ignored)
        self._gateway.limits.admit_lookup(identity)
        key = (identity.user_id, message.request_id)
        match message:
            case FollowMessage():
                self._gateway.limits.follow(self._holder, identity)
                self._follow(identity, message.request_id, message.starting_after)
                await self._send({"type": "following", "ref": message.ref, "request_id": message.request_id})
            case UnfollowMessage():
                if task := self._following.get(key):
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
                await self._send({"type": "unfollowed", "ref": message.ref, "request_id": message.request_id})
            case CancelMessage():
                await self._gateway.request_producer.cancel(*key)
                await self._send({"type": "cancelling", "ref": message.ref, "request_id": message.request_id})
        return None

    async def _ask(self, message: AskBody, identity: Identity, conversation: str | None, ignored: list[str]) -> None:
        message.check_prompt(ignored)
        store = self._gateway.settings.gateway_store
        asked = message.request(identity, store=store, conversation=conversation)
        self._gateway.limits.follow(self._holder, identity)
        try:
            (asked,) = await self._gateway.admit(identity, [asked])
            await self._gateway.request_producer.ask(asked, is_new=message.request_id is None)
            reply: dict[str, Any] = {"request_id": asked.request_id, "conversation_id": asked.conversation_id}
            if ignored:
                reply["ignored"] = ignored
            await self._send({"type": "asked", "ref": getattr(message, "ref", None), **reply})
        except BaseException:
            self._gateway.limits.unfollow(self._holder, identity)
            raise
        self._follow(identity, asked.request_id, 0)

    def _follow(self, identity: Identity, request_id: str, after: int) -> None:
        """Start following, with a stream that is open; an existing follower of the answer is replaced."""
        key = (identity.user_id, request_id)
        if before := self._following.pop(key, None):
            before.cancel()
        task = asyncio.create_task(self._pass_on(identity, request_id, after), name=f"socket follows {request_id}")
        self._following[key] = task
        task.add_done_callback(lambda done: self._left(identity, key, done))

    def _left(self, identity: Identity, key: _Key, task: asyncio.Task[None]) -> None:
        self._gateway.limits.unfollow(self._holder, identity)
        if self._following.get(key) is task:
            del self._following[key]
        if not task.cancelled():
            task.exception()  # the client has left

    async def _pass_on(self, identity: Identity, request_id: str, after: int) -> None:
        events = self._gateway.follower.events(identity.user_id, request_id, after)
        try:
            async for batch in events:
                for event in batch:
                    await self._send(event)
        except ApiError as error:
            await self._send({"type": "refused", "request_id": request_id, **error.body})
        except WebSocketDisconnect:
            raise
        except Exception as failure:  # noqa: BLE001 - what one answer holds ends no other
            refusal = error_of(failure, "an answer on a WebSocket")
            await self._send({"type": "refused", "request_id": request_id, **refusal.body})
        finally:
            await events.aclose()

    async def _send(self, reply: dict[str, Any] | TokenEvent) -> None:
        await self._send_text(_encoder.encode(reply).decode())

    async def _send_text(self, text: str) -> None:
        try:
            with unsent(self._socket.scope, len(text)):
                async with asyncio.timeout(bounds.STALL_S), self._turn:
                    await self._socket.send_text(text)
        except (TimeoutError, ApiError):
            self._end(TOO_SLOW)
            raise WebSocketDisconnect(TOO_SLOW) from None
        except RuntimeError:  # raised by Starlette if another task has noticed that the connection is closed
            raise WebSocketDisconnect(GONE) from None

    def _end(self, code: int) -> None:
        self._code = code
        self._ending.set()
