"""`/v1/ws`: several requests on one WebSocket.

Messages of the client are JSON, one per frame. `ref` is any string and is repeated in the reply:

    {"type": "ask", "ref": "1", "prompt": "Hi"}                          fields of `POST /v1/requests`; also follows
    {"type": "follow", "request_id": "0197…", "starting_after": 12}      a position as in `Last-Event-ID`
    {"type": "unfollow", "request_id": "0197…"}
    {"type": "cancel", "request_id": "0197…"}

Messages of the gateway are the events of `tokens`, as in the event streams, and its replies. The position to continue
from is an event's `index` plus the number of its `tokens`. Replies are `asked`, `following`, `unfollowed` and
`cancelling` with the `request_id` (`asked` also names fields that had no effect, as `ignored`), or `refused` with the
`error` in OpenAI's format and possibly `retry_after_s`. The connection stays open after an error. A caller that acts
for several users names the `user_id` in each message.

The key is in `Authorization` or, for browsers, in the subprotocols `parley` and `bearer.KEY`. When the token of a
connection expires, the gateway closes it with the code 3000 (unauthorized).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from fastapi import APIRouter
from starlette.websockets import WebSocket

from app.gateway.asking.channel import Channel
from app.gateway.asking.gateway import Gateway, gateway_of
from app.gateway.edge.errors import ApiError

router = APIRouter(prefix="/v1", tags=["requests"])

SUBPROTOCOL = "parley"


@router.websocket("/ws")
async def talk(socket: WebSocket) -> None:
    await serve_socket(socket, Channel)


async def serve_socket(socket: WebSocket, opened: Callable[[Gateway, WebSocket, str], Channel]) -> None:
    """Serve one connection, if its caller may have it."""
    gateway = gateway_of(socket)
    with ExitStack() as held:
        try:
            caller = await gateway.access.caller(socket)
            held.enter_context(gateway.limits.socket(caller.holder))
        except ApiError as error:
            gateway.audit_trail.denied(socket, error)
            await socket.send_denial_response(error.response())
            return
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope["subprotocols"] else None)
        async with opened(gateway, socket, caller.holder) as channel:
            await channel.serve(caller.valid_s)
