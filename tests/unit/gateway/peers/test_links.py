"""Links between real ports for gateways on the loopback interface."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app.gateway.answers.follow import AnswerReader
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.peers.admission import Admission
from app.gateway.peers.directory import Directory
from app.gateway.peers.link import Links, PeerAwayError
from app.gateway.peers.port import PeerPort
from app.gateway.peers.session import Session
from app.gateway.peers.trust import REFUSED, Trust
from app.reader import Answer
from app.wire.event import EventType, TokenEvent

SECRET, OTHER = b"0" * 32, b"1" * 32
OWNER, ASKING = "http://owner:8080", "http://asking:8080"


class Limits:
    """As much of `Admission` as a session needs."""

    def __init__(self) -> None:
        self.requests = 0

    def charge(self, _name: str, requests: int, _answers: int) -> None:
        self.requests += requests


class LongAnswer:
    """As much of a `AnswerReader` as a look needs."""

    def __init__(self, events: int) -> None:
        self._events = events

    def is_local(self, _user_id: str) -> bool:
        return True

    async def local_answer(self, user_id: str, request_id: str) -> Answer:
        answer = Answer(user_id, request_id, "c")
        for index in range(self._events):
            event = TokenEvent(type=EventType.TOKEN, request_id=request_id, user_id=user_id, index=index, tokens=(7,))
            answer.append(event)
        return answer


@asynccontextmanager
async def port(trust: Trust, limits: Limits | None = None, events: int = 0) -> AsyncIterator[str]:
    follower = cast(AnswerReader, LongAnswer(events))

    async def serve_known(connection: ServerConnection) -> None:
        await Session(connection, follower, Directory(1), cast(Admission, limits or Limits())).serve()

    listener = socket.create_server(("127.0.0.1", 0))
    serving = PeerPort(trust, None, serve_known, lambda: None)
    await serving.start(listener)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await serving.stop()
        listener.close()


@asynccontextmanager
async def links(address: str, *secrets: bytes) -> AsyncIterator[Links]:
    made = Links(Trust(ASKING, secrets), None, GatewayMetrics())
    await made.keep({OWNER: address})
    try:
        yield made
    finally:
        await made.close()


async def charge(made: Links, within_s: float = 60.0) -> None:
    async with asyncio.timeout(within_s):
        await made.to(OWNER).charge("acme/nina", 1, 1)


@pytest.mark.parametrize(
    ("owners", "askings"), [((SECRET,), (SECRET,)), ((SECRET, OTHER), (OTHER,)), ((SECRET,), (OTHER, SECRET))]
)
async def test_gateways_with_a_common_secret_serve_each_other(
    owners: tuple[bytes, ...], askings: tuple[bytes, ...]
) -> None:
    limits = Limits()
    async with port(Trust(OWNER, owners), limits) as address, links(address, *askings) as made:
        await charge(made)
        assert (limits.requests, made.refused) == (1, False)


async def test_a_gateway_with_another_secret_is_refused_and_not_away(caplog: pytest.LogCaptureFixture) -> None:
    async with port(Trust(OWNER, (SECRET,))) as address, links(address, OTHER) as made:
        with pytest.raises(PeerAwayError):
            await charge(made)
        assert made.refused
        assert "is refused" in caplog.text
        assert "away" not in caplog.text
        for _ in range(20):
            with pytest.raises(PeerAwayError):
                await charge(made)
        assert caplog.text.count("the gateway at") == 1, "said once, however often it is tried"


async def test_a_gateway_that_closes_its_links_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with port(Trust(OWNER, (SECRET,))) as address, links(address, SECRET) as made:
        await charge(made)
        await made.keep({})
    assert not caplog.records


async def test_a_peer_that_the_group_names_learns_no_secret_and_cannot_serve(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    async def impostor(connection: ServerConnection) -> None:
        heard.append(str(connection.request.headers if connection.request else ""))
        for reply in ({"nonce": "n"}, {"proof": "0" * 64}):
            heard.append(str(await connection.recv()))
            await connection.send(json.dumps(reply))
        await connection.wait_closed()

    async with serve(impostor, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with links(address, SECRET) as made:
            with pytest.raises(PeerAwayError):
                await charge(made)
            assert made.refused
    assert len(heard) == 3
    assert SECRET.decode() not in "".join(heard)
    assert "does not prove" in caplog.text


async def test_a_proof_cannot_be_passed_on_by_a_gateway_in_between() -> None:
    """It asks the owner in its own name with what the asking gateway has sent to it."""
    async with port(Trust(OWNER, (SECRET,))) as address:

        async def between(asking: ServerConnection) -> None:
            async with connect(address.replace("http", "ws"), proxy=None) as owner:
                await owner.send(await asking.recv())
                await asking.send(await owner.recv())
                await owner.send(await asking.recv())
                with pytest.raises(ConnectionClosed):
                    await owner.recv()
            await asking.close(REFUSED)

        async with serve(between, "127.0.0.1", 0) as server:
            made = Links(Trust(ASKING, (SECRET,)), None, GatewayMetrics())
            await made.keep({"http://between:8080": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"})
            with pytest.raises(PeerAwayError):
                async with asyncio.timeout(60):
                    await made.to("http://between:8080").charge("acme/nina", 1, 1)
            await made.close()


async def test_the_port_refuses_browsers_and_whatever_is_no_proof() -> None:
    async with port(Trust(OWNER, (SECRET,))) as address:
        url = address.replace("http", "ws")
        with pytest.raises(InvalidStatus):
            async with connect(url, origin=cast(Any, "https://evil.example"), proxy=None):
                pass
        for first in (
            "[]",
            "{",
            "x" * 10_000,
            '[{"type": "charge", "id": 1, "name": "acme", "requests": 1}]',
            '{"name": 1}',
        ):
            async with connect(url, proxy=None) as stranger:
                await stranger.send(first)
                await stranger.wait_closed()
                assert stranger.close_code == REFUSED


async def test_a_negative_charge_ends_the_link_and_changes_nothing() -> None:
    limits = Limits()
    async with port(Trust(OWNER, (SECRET,)), limits) as address, links(address, SECRET) as made:
        await charge(made)
        with pytest.raises(PeerAwayError):
            await made.to(OWNER).charge("acme/nina", -1_000_000, 1)
        assert limits.requests == 1


async def test_a_look_finds_all_events_of_a_long_answer() -> None:
    async with port(Trust(OWNER, (SECRET,)), events=5_001) as address, links(address, SECRET) as made:
        found = await made.to(OWNER).read_answer("acme/nina", "r")
    assert [event.index for event in found] == list(range(5_001))
