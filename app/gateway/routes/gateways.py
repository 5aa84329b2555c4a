"""`/internal/gateways`: where other gateways ask for the users of this one's partitions (sharing/)."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response
from starlette.websockets import WebSocket

from app.gateway.gateway import gateway_of
from app.gateway.sharing.frames import PATH
from app.gateway.sharing.session import Session
from app.gateway.sharing.trust import is_peer

router = APIRouter()


@router.websocket(PATH)
async def serve_gateway(socket: WebSocket) -> None:
    gateway = gateway_of(socket)
    if not gateway.directory.is_shared or not is_peer(socket, gateway.peer_secret):
        await socket.send_denial_response(Response(status_code=404))
        return
    await socket.accept()
    await Session(socket, gateway.follower, gateway.directory, gateway.admission).serve()
