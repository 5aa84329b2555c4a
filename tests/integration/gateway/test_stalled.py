"""Readers on real sockets that stop reading: what they cost, and that they are dropped."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
from websockets.asyncio.client import connect

from app.kafka.clients import producer
from app.settings import Settings
from app.wire.codec import encode
from app.wire.event import EventType, TokenEvent
from app.wire.ids import partition_for
from models.interface.generation import FinishReason
from tests.conftest import NewSettings
from tests.integration.gateway.gateway_process import GatewayProcess

EVENTS, TEXT = 1000, "x" * 10_000
READERS = 6
MIB = 2**20


async def write_long_answer(settings: Settings, request_id: str) -> None:
    """20 MB of an answer, as a worker would say them."""
    about = {"request_id": request_id, "user_id": "dev", "conversation_id": "c"}
    tokens = producer(settings.cluster)
    await tokens.start()
    partition = partition_for("dev", settings.partitions)

    async def say(event: TokenEvent) -> object:
        value, headers = encode(event, "json")
        return await tokens.send(settings.topic("tokens"), value, key=b"dev", partition=partition, headers=headers)

    opened = await say(TokenEvent(type=EventType.FENCE))
    epoch = (await opened).offset
    for index in range(EVENTS):
        await say(TokenEvent(type=EventType.TOKEN, index=index, epoch=epoch, tokens=(1,), text=TEXT, **about))
    last = TokenEvent(type=EventType.DONE, index=EVENTS, epoch=epoch, finish_reason=FinishReason.STOP, **about)
    await (await say(last))
    await tokens.stop()


def small_socket(gateway: GatewayProcess) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", gateway.settings.gateway_port))
    return made


async def stall_on_events(gateway: GatewayProcess, opened: ExitStack) -> None:
    raw = opened.enter_context(small_socket(gateway))
    raw.sendall(b"GET /v1/requests/long/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")


async def stall_on_websocket(gateway: GatewayProcess, opened: ExitStack) -> None:
    url = f"ws://127.0.0.1:{gateway.settings.gateway_port}/v1/ws"
    talk = await connect(url, sock=small_socket(gateway), proxy=None, max_queue=1, ping_interval=None, open_timeout=120)
    await talk.send(json.dumps({"type": "follow", "request_id": "long"}))
    talk.transport.pause_reading()
    opened.callback(talk.transport.abort)


async def test_readers_that_take_nothing_cost_little_and_are_dropped(new_settings: NewSettings, tmp_path: Path) -> None:
    settings = await new_settings()
    constants = {"app.gateway.edge.bounds.STALL_S": 40.0}  # all of them are open at once before
    with GatewayProcess(settings, tmp_path / "gateway.log", constants=constants) as gateway, ExitStack() as opened:
        await write_long_answer(settings, "long")
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
            # The stream ends when the gateway has read the whole answer; only then is its index final.
            assert (await http.get("/v1/requests/long/events")).text.count("data: ") == EVENTS + 1
            assert (await http.get("/v1/requests/long")).json()["index"] == EVENTS
            process = psutil.Process(gateway.pid)
            before = process.memory_info().rss
            for _ in range(READERS // 2):
                await stall_on_events(gateway, opened)
                await stall_on_websocket(gateway, opened)
            await until_figure(http, f"parley_gateway_streams {READERS}.0")
            await asyncio.sleep(0.5)
            each = (process.memory_info().rss - before) / READERS
            await until_figure(http, f"parley_gateway_stalled_total {READERS}.0")
            await until_figure(http, "parley_gateway_streams 0.0")
            assert each < 6 * MIB, f"{each / MIB:.1f} MiB a reader of {EVENTS * len(TEXT) / MIB:.0f} MiB"
        assert gateway.stop() == 0


async def until_figure(http: httpx.AsyncClient, line: str) -> None:
    async with asyncio.timeout(120):
        while line not in (await http.get("/metrics")).text.splitlines():
            await asyncio.sleep(0.1)
