"""A WebSocket at a path of the policy: each message is a question, with the names of its page.

With `format = "events"` the gateway's messages are those of `/v1/ws`. Otherwise they are the texts of the answers
alone, one answer behind the other in the order of the questions, and each ends with an empty message: to add that to
what is shown changes nothing. A question that is refused, or whose answer fails before its first text, has in its turn
the JSON error (`{"error": {…}}`, beside it its `request_id` if it is known) and the empty message; behind a text the
connection is closed instead.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from types import TracebackType
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

_MOST_REFUSALS = 32
"""Of one connection, behind an answer that has its turn. No further message is read meanwhile."""


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
    """The lock wakes those who wait for it in the order in which they came, which is that of the questions."""

    def __init__(self, page: PolicyPage, gateway: Gateway, socket: WebSocket, holder: str) -> None:
        super().__init__(page, gateway, socket, holder)
        self._answer = asyncio.Lock()
        self._refusals: set[asyncio.Task[None]] = set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        for task in self._refusals:
            task.cancel()
        await asyncio.gather(*self._refusals, return_exceptions=True)
        await super().__aexit__(kind, error, at)

    async def _send(self, reply: dict[str, Any] | TokenEvent) -> None:
        """Refusals alone, each in its turn: nothing else has a place beside texts."""
        if not isinstance(reply, dict) or "error" not in reply:
            return
        if len(self._refusals) >= _MOST_REFUSALS:
            await asyncio.wait(self._refusals, return_when=asyncio.FIRST_COMPLETED)
        error = {name: value for name, value in reply.items() if name not in {"type", "ref"}}
        task = asyncio.create_task(self._refuse_in_turn(error), name="a refusal in its turn")
        self._refusals.add(task)
        task.add_done_callback(self._refusals.discard)

    async def _refuse_in_turn(self, error: dict[str, Any]) -> None:
        with suppress(WebSocketDisconnect):
            async with self._answer:
                await self._tell(error)

    async def _tell(self, error: dict[str, Any]) -> None:
        await super()._send(error)
        await self._send_text("")

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
                    await self._tell({"request_id": request_id, **renamed(error, self._page.rules.fields).body})
