"""What a connection may cost before the gateway knows the caller, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvicorn
import websockets
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from app.gateway.edge import connections, guarded_socket
from app.gateway.edge.bodies import Bodies
from app.gateway.edge.connections import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_PIPELINED,
    ByAddress,
    Gate,
    GuardedHttp,
    group_of,
)
from app.gateway.edge.guarded_socket import GuardedWebSocket


class Peer(asyncio.BaseTransport):
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 1)


GET = b"GET / HTTP/1.1\r\nHost: a\r\n"


async def _echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"{len(await request.body())} bytes")


async def _slow(_request: Request) -> PlainTextResponse:
    await asyncio.sleep(1)
    return PlainTextResponse("slow")


async def _talk(webs: WebSocket) -> None:
    await webs.accept()
    while (message := await webs.receive())["type"] == "websocket.receive":
        await webs.send_text(f"{len(message.get('text') or message.get('bytes') or '')}")


@asynccontextmanager
async def served(gate: Gate, **options: Any) -> AsyncIterator[int]:
    app = Starlette(
        routes=[
            Route("/", _echo, methods=["GET", "POST"]),
            Route("/slow", _slow),
            WebSocketRoute("/ws", _talk),
        ]
    )
    listener = socket.create_server(("127.0.0.1", 0))
    protocols: dict[str, Any] = {
        "http": partial(GuardedHttp, gate=gate),
        "ws": partial(GuardedWebSocket, gate=gate, bodies=options.pop("bodies", None) or Bodies(1 << 20)),
    }
    wrapped = ByAddress(app, 1) if options.get("proxy_headers") else app
    config = uvicorn.Config(wrapped, log_level="critical", lifespan="off", **protocols, **options)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def exchange(port: int, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """All that comes until the connection is closed; the gateway may close it while it is written to."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b"reset"
    finally:
        writer.close()


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP") else 0


@pytest.mark.parametrize(
    "head",
    [
        [b"GET / HTTP/1.1\r\nX: ", *[b"a" * 65536] * 128],
        [b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nX: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n"],
        [GET + b"X: y\r\n" * MAX_HEADERS + b"\r\n"],
        [GET, *[b"".join(b"X%d: y\r\n" % number for number in range(1000))] * 200],
        [GET + b"\r\n" + b"GET / HTTP/1.1\r\nX: ", *[b"a" * 65536] * 16],
    ],
    ids=["8 MiB in one header", "a long path", "one header", "many headers", "200,000 headers", "the second request"],
)
async def test_a_head_that_is_too_large_is_refused(head: list[bytes]) -> None:
    async with served(Gate(10, 10)) as port:
        reply = await exchange(port, *head)
        assert reply == b"reset" or b"HTTP/1.1 431" in reply
        assert status_of(await exchange(port, GET + b"Connection: close\r\n\r\n")) == 200


async def test_the_largest_head_and_pipelined_requests_are_served() -> None:
    large = GET + b"X: " + b"a" * (MAX_HEAD_BYTES - 100) + b"\r\n\r\n"
    body = b"a" * 100_000
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + body
    async with served(Gate(10, 10)) as port:
        reply = await exchange(port, large + post * 5 + GET + b"Connection: close\r\n\r\n")
    assert reply.count(b"HTTP/1.1 200") == 7
    assert reply.count(b"100000 bytes") == 5


async def test_requests_that_wait_behind_others_are_few() -> None:
    """Each takes kilobytes from the moment at which it is parsed."""
    async with served(Gate(10, 10)) as port:
        flood = GET.replace(b"/", b"/slow", 1) + b"\r\n" + (GET + b"\r\n") * 100_000
        tracemalloc.start()
        try:
            assert (await exchange(port, flood)).count(b"HTTP/1.1") <= 1
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < len(flood) * 3
        few = await exchange(port, (GET + b"\r\n") * (MAX_PIPELINED - 1) + GET + b"Connection: close\r\n\r\n")
        assert few.count(b"HTTP/1.1 200") == MAX_PIPELINED


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """As a client sends it: masked, with zeros."""
    size = len(payload)
    head = bytes([(0x80 if fin else 0) | opcode])
    if size < 126:
        return head + bytes([0x80 | size]) + bytes(4) + payload
    return head + bytes([0xFF]) + size.to_bytes(8, "big") + bytes(4) + payload


async def talk(port: int, *parts: bytes, messages: int = 0, pause_s: float = 0.0) -> tuple[bytes, int]:
    """What comes until so many messages have come, or until the close, and the code of the close: 0 for none, 1006 if
    it was lost behind what was not read.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    writer.write(b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + key)
    await reader.readuntil(b"\r\n\r\n")
    got = bytearray()
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause_s)
        async with asyncio.timeout(60):
            while (not messages or got.count(b"\x81") < messages) and (part := await reader.read(65536)):
                got += part
    except ConnectionError:
        return bytes(got), 1006
    finally:
        writer.close()
    at = got.rfind(b"\x88")
    return bytes(got), int.from_bytes(got[at + 2 : at + 4], "big") if at >= 0 else 0


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([frame(9)] * 5000, 1008),
        ([frame(10)] * 5000, 1008),
        ([frame(1, fin=False), *[frame(0, fin=False)] * 50_000], 1009),
        ([frame(1, b"x" * 900_000)[:-1]], 1013),
        ([frame(1, fin=False), *[frame(0, b"x" * 1000, fin=False)] * 900], 1013),
        ([frame(9), frame(1, b"hi")] * 100, 0),
        ([frame(1, b"x" * 300_000)] * 2, 0),
    ],
    ids=["pings", "pongs", "empty fragments", "too large to hold", "and in fragments", "few pings", "large messages"],
)
async def test_frames_that_make_no_message_close_the_socket(parts: list[bytes], code: int) -> None:
    bodies = Bodies(600_000)
    async with served(Gate(10, 10), bodies=bodies) as port:
        messages = 0 if code else len([part for part in parts if part[:1] == b"\x81"])
        got, closed_with = await talk(port, b"".join(parts), messages=messages)
        assert closed_with == code or (code and closed_with == 1006)
        assert code or got.count(b"\x81") == messages
        async with asyncio.timeout(60):
            while bodies.held:
                await asyncio.sleep(0.01)


async def test_a_message_that_does_not_end_closes_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_socket, "MESSAGE_S", 0.3)
    bodies = Bodies(1 << 20)
    async with served(Gate(10, 10), bodies=bodies) as port:
        whole = frame(1, b"x" * 200_000)
        _, code = await talk(port, whole[:100_000], b"x" * 1000, pause_s=0.2)
        assert code in {1006, 1008}
        async with asyncio.timeout(60):
            while bodies.held:
                await asyncio.sleep(0.01)
        monkeypatch.setattr(guarded_socket, "MESSAGE_S", 60.0)
        got, code = await talk(port, whole[:100_000], whole[100_000:], messages=1, pause_s=0.1)
        assert (got, code) == (b"\x81\x06200000", 0)


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([b"GET / HTTP/1.1\r\n"] + [b"X: y\r\n"] * 20, 408),
        ([b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"] + [b"a"] * 8, 408),
        ([], 0),
    ],
    ids=["head", "body", "nothing"],
)
async def test_what_comes_too_slowly_is_refused(
    monkeypatch: pytest.MonkeyPatch, parts: list[bytes], status: int
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(connections, "BODY_S", 0.3)
    gate = Gate(10, 10)
    async with served(gate) as port:
        reply = await exchange(port, *parts, pause_s=0.1)
        assert reply == b"reset" or status_of(reply) == status
        async with asyncio.timeout(60):
            while gate.open:
                await asyncio.sleep(0.01)


async def test_a_slow_answer_is_no_slow_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(connections, "BODY_S", 0.3)
    async with served(Gate(10, 10)) as port:
        reply = await exchange(port, b"GET /slow HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert reply.endswith(b"slow")


@pytest.mark.parametrize("limits", [(3, 10), (10, 3)], ids=["in all", "of an address"])
async def test_a_connection_too_many_is_refused_until_one_ends(limits: tuple[int, int]) -> None:
    gate = Gate(*limits)
    async with served(gate) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        talk = await websockets.connect(f"ws://127.0.0.1:{port}/ws")
        assert gate.open == 3
        assert status_of(await exchange(port, GET + b"\r\n")) == 503
        assert gate.refused == 1
        await talk.close()
        for _, writer in held:
            writer.close()
        async with asyncio.timeout(60):
            while gate.open:
                await asyncio.sleep(0.01)
        assert status_of(await exchange(port, GET + b"Connection: close\r\n\r\n")) == 200


async def test_behind_a_trusted_proxy_the_forwarded_address_counts() -> None:
    gate = Gate(10, 1, frozenset({"127.0.0.0/8"}))

    def asked(address: bytes) -> bytes:
        return b"GET /slow HTTP/1.1\r\nConnection: close\r\nX-Forwarded-For: " + address + b"\r\n\r\n"

    async with served(gate, proxy_headers=True, forwarded_allow_ips=["127.0.0.1"]) as port:
        asking = [asked(b"10.0.0.1"), asked(b"10.0.0.1"), asked(b"10.0.0.2")]
        replies = await asyncio.gather(*(exchange(port, one) for one in asking))
    assert sorted(map(status_of, replies[:2])) == [200, 503]
    assert status_of(replies[2]) == 200


def test_an_ipv6_network_counts_as_one_address() -> None:
    assert group_of("2001:db8::1") == group_of("2001:db8::ffff:1") != group_of("2001:db8:0:1::1")
    assert group_of("::ffff:10.0.0.1") == group_of("10.0.0.1") != group_of("10.0.0.2")


def test_the_files_that_the_process_may_open_bound_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (258, 258))
    gate = Gate(1000, 1000)
    assert [gate.enter(Peer()) for _ in range(3)] == [True, True, False]
