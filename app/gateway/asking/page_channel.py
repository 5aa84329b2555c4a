"""A WebSocket at a path of the policy: each message is a question, with the names of its page.

With `format = "events"` the gateway's messages are those of `/v1/ws`. Otherwise they are the texts of the answers
alone, one answer behind the other in the order of the questions, and each ends with an empty message: to add that to
what is shown changes nothing. An error before an answer's first text is a message with the JSON error; behind it the
connection is closed.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from app.gateway.asking.ask import AskBody
from app.gateway.asking.channel import FAILED, AnyMessage, Channel
from app.gateway.asking.gateway import Gateway
from app.gateway.asking.page_text import pieces_of
from app.gateway.asking.pages import PolicyPage
from app.gateway.callers.identity import Identity
from app.gateway.edge.errors import ApiError, error_of, invalid, renamed
from app.wire.event import TokenEvent


def channel_of(page: PolicyPage, gateway: Gateway, socket: WebSocket, holder: str) -> Channel:
    kind = TextChannel if page.shows_text else PageChannel
    return kind(page, gateway, socket, holder)


class PageChannel(Channel):
    """Messages have the names of the page, errors too."""

    def __init__(self, page: PolicyPage, gateway: Gateway, socket: WebSocket, holder: str) -> None:
        super().__init__(gateway, socket, holder)
        self.kind = page.body
        self._page = page

    async def _refuse(self, ref: str | None, message: AnyMessage | None, error: ApiError) -> None:
        await super()._refuse(ref, message, renamed(error, self._page.rules.fields))


class TextChannel(PageChannel):
    def __init__(self, page: PolicyPage, gateway: Gateway, socket: WebSocket, holder: str) -> None:
        super().__init__(page, gateway, socket, holder)
        self._answer = asyncio.Lock()

    async def _send(self, reply: dict[str, Any] | TokenEvent) -> None:
        """Errors alone: nothing else has a place beside texts."""
        if isinstance(reply, dict) and "error" in reply:
            await super()._send({name: value for name, value in reply.items() if name not in {"type", "ref"}})

    async def _ask(self, message: AskBody, identity: Identity, conversation: str | None, ignored: list[str]) -> None:
        if (identity.user_id, message.request_id) in self._following:
            raise invalid("request_id", "this request is being answered on this connection")
        await super()._ask(message, identity, conversation, ignored)

    async def _pass_on(self, identity: Identity, request_id: str, after: int) -> None:
        is_shown = False
        async with self._answer:
            try:
                async with aclosing(pieces_of(self._gateway, identity.user_id, request_id, after)) as pieces:
                    async for piece in pieces:
                        if piece.text:
                            is_shown = True
                            await self._send_text(piece.text)
                await self._send_text("")
            except WebSocketDisconnect:
                raise
            except Exception as failure:  # noqa: BLE001 - what one answer holds ends no other, unless it has begun
                error = failure if isinstance(failure, ApiError) else error_of(failure, "an answer on a WebSocket")
                if is_shown:
                    self._end(FAILED)
                else:
                    await self._send({"request_id": request_id, **renamed(error, self._page.rules.fields).body})
