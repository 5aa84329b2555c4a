"""A WebSocket whose client leaves at a bad moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket

from app.gateway.asking.channel import Channel
from app.gateway.asking.gateway import Gateway
from app.gateway.callers.rates import RateLimits
from app.gateway.edge.bodies import Bodies
from app.gateway.edge.metrics import GatewayMetrics
from app.settings import Settings


def socket_with(frames: list[dict[str, Any]], failure: Exception) -> WebSocket:
    """A connected WebSocket that receives `frames`; every message sent after its acceptance fails."""
    incoming = iter([{"type": "websocket.connect"}, *frames, {"type": "websocket.disconnect", "code": 1006}])

    async def receive() -> Any:
        return next(incoming)

    async def send(message: Any) -> None:
        if message["type"] != "websocket.accept":
            raise failure

    return WebSocket({"type": "websocket", "path": "/v1/ws", "headers": []}, receive, send)


@pytest.mark.parametrize("failure", [OSError("connection reset"), RuntimeError("send after close")])
async def test_a_client_that_left_before_its_refusal_ends_the_channel_quietly(failure: Exception) -> None:
    gateway = cast(
        Gateway,
        SimpleNamespace(
            settings=SimpleNamespace(gateway_wait_s=1.0),
            audit_trail=SimpleNamespace(denied=lambda *_: None),
            bodies=Bodies(1000),
            limits=RateLimits(Settings(_env_file=None), GatewayMetrics()),
        ),
    )
    bad = {"type": "websocket.receive", "text": "{not json"}
    socket = socket_with([bad, bad], failure)
    await socket.accept()
    async with Channel(gateway, socket, "nina") as channel:
        await channel.serve()
