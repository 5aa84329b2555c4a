"""`/v1/ws`: several requests on one WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import jwt
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from app.local.kafka import KafkaCluster
from tests.integration.gateway.events import answer
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.conftest import module_settings

SECRET = "a secret that has well over 32 bytes"


@asynccontextmanager
async def opened(gateway: GatewayProcess, path: str = "/v1/ws", **options: Any) -> AsyncIterator[ClientConnection]:
    url = gateway.url.replace("http", "ws") + path
    async with connect(url, proxy=None, open_timeout=120, ping_interval=None, **options) as socket:
        yield socket


async def say(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


async def heard(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(120):
        reported: dict[str, Any] = json.loads(await socket.recv())
        return reported


async def up_to_the_end(socket: ClientConnection) -> list[dict[str, Any]]:
    events = [await heard(socket)]
    while events[-1]["type"] not in {"done", "error"}:
        events.append(await heard(socket))
    return events


def indexes_of(events: list[dict[str, Any]]) -> list[int]:
    """Of the tokens, of which an event may have some."""
    spans = [range(one["index"], one["index"] + len(one["tokens"])) for one in events if one["type"] == "token"]
    return [index for span in spans for index in span]


async def test_what_is_asked_is_followed_and_says_the_same_as_an_event_stream(
    gateway: GatewayProcess, http: httpx.AsyncClient
) -> None:
    async with opened(gateway) as socket:
        await say(socket, type="ask", ref="a", prompt="hello", max_tokens=12)
        asked = await heard(socket)
        assert (asked["type"], asked["ref"]) == ("asked", "a")
        events = await up_to_the_end(socket)
    sent = await answer(http, asked["request_id"])
    assert [one for one in events if one["type"] != "notice"] == [one.event for one in sent if one.id]


async def test_several_requests_share_one_connection(gateway: GatewayProcess) -> None:
    async with opened(gateway) as socket:
        for number in range(10):
            await say(
                socket, type="ask", ref=str(number), prompt=f"say {number}", conversation_id=str(number), max_tokens=9
            )
        refs, events = {}, {}
        while len([one for one in events.values() if one[-1]["type"] == "done"]) < 10:
            reported = await heard(socket)
            if reported["type"] == "asked":
                refs[reported["request_id"]] = reported["ref"]
            elif reported["type"] != "notice":
                events.setdefault(reported["request_id"], []).append(reported)
    assert sorted(refs.values()) == [str(number) for number in range(10)]
    assert set(events) == set(refs)
    for sent in events.values():
        # An event holds a few tokens where the worker was busy.
        assert indexes_of(sent) == list(range(9))
        assert sent[-1]["index"] == 9


async def test_an_answer_goes_on_after_the_place_that_is_named_on_another_connection(gateway: GatewayProcess) -> None:
    async with opened(gateway) as socket:
        await say(socket, type="ask", prompt="hello", max_tokens=30)
        request_id = (await heard(socket))["request_id"]
        first = [await heard(socket)]
        while first[-1]["type"] != "token":
            first.append(await heard(socket))
    async with opened(gateway) as socket:
        begin = len(indexes_of(first))
        await say(socket, type="follow", ref="b", request_id=request_id, starting_after=begin)
        assert await heard(socket) == {"type": "following", "ref": "b", "request_id": request_id}
        rest = await up_to_the_end(socket)
    assert indexes_of(first + rest) == list(range(30))


async def test_a_cancel_ends_the_answer_and_an_unfollow_the_telling_of_it(gateway: GatewayProcess) -> None:
    async with opened(gateway) as socket:
        ids = []
        for number in (1, 2):
            await say(socket, type="ask", ref="a", prompt="hello", conversation_id=str(number), max_tokens=100_000)
            while (reported := await heard(socket))["type"] != "asked":
                pass
            ids.append(reported["request_id"])
        await say(socket, type="unfollow", ref="u", request_id=ids[0])
        while (await heard(socket))["type"] != "unfollowed":
            pass
        await say(socket, type="cancel", ref="c", request_id=ids[1])
        events = await up_to_the_end(socket)
        cancelling = {"type": "cancelling", "ref": "c", "request_id": ids[1]}
        assert events[-1]["finish_reason"] == "cancelled"
        if cancelling not in events:
            events.append(await heard(socket))
        assert cancelling in events
        assert {one["request_id"] for one in events} == {ids[1]}
        await say(socket, type="cancel", request_id=ids[0])


async def test_what_is_wrong_is_refused_and_the_connection_stays(gateway: GatewayProcess) -> None:
    wrong = {
        "{": None,
        "[]": None,
        '{"type": "sing"}': "type",
        '{"type": "ask", "prompt": "x", "temperature": 9}': "temperature",
        '{"type": "follow", "request_id": "a b"}': "request_id",
        '{"type": "follow", "request_id": "a", "starting_after": -1}': "starting_after",
    }
    async with opened(gateway) as socket:
        for message, param in wrong.items():
            await socket.send(message)
            reported = await heard(socket)
            assert (reported["type"], reported["error"]["code"], reported["error"]["param"]) == (
                "refused",
                "invalid_request",
                param,
            )
        await socket.send("x" * 1_100_000)
        with pytest.raises(ConnectionClosed) as closed:
            await heard(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_a_page_of_another_site_is_not_let_in(gateway: GatewayProcess) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with opened(gateway, origin="https://parley.example"):
            pass
    assert refused.value.response.status_code == 403
    log = gateway.log.read_text()
    assert "PARLEY_GATEWAY_ORIGINS=https://parley.example would let it call" in log
    assert "without completing handshake" not in log
    async with opened(gateway, origin=gateway.url):
        pass


@pytest.fixture(scope="module")
def guarded(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("guarded")
    own = {"gateway_api_keys": "key-of-nina-0123=nina", "jwt_secret": SECRET, "gateway_requests_per_min": 5}
    with GatewayProcess(module_settings(kafka, folder, gateway_wait_s=0.2, **own), folder / "gateway.log") as gateway:
        yield gateway


async def test_the_key_is_in_the_header_or_for_browsers_in_the_subprotocol(guarded: GatewayProcess) -> None:
    header = {"Authorization": "Bearer key-of-nina-0123"}
    protocols = [Subprotocol("parley"), Subprotocol("bearer.key-of-nina-0123")]
    for options in ({"additional_headers": header}, {"subprotocols": protocols, "origin": "https://parley.example"}):
        async with opened(guarded, **options) as socket:
            assert socket.subprotocol in {None, "parley"}
            await say(socket, type="ask", prompt="hello")
            assert (await heard(socket))["type"] == "asked"
            await say(socket, type="ask", prompt="hello", user_id="omar")
            assert (await heard(socket))["error"]["code"] == "unauthorized"
    expired = jwt.encode({"sub": "nina", "exp": time.time() - 60}, SECRET)
    for credential in ("", "Bearer not-a-key-at-all", f"Bearer {expired}"):
        with pytest.raises(InvalidStatus) as refused:
            async with opened(guarded, additional_headers={"Authorization": credential}):
                pass
        assert refused.value.response.status_code == 401


async def test_it_has_the_limits_of_the_other_ways(guarded: GatewayProcess) -> None:
    async with opened(guarded, additional_headers={"Authorization": "Bearer key-of-nina-0123"}) as socket:
        for _ in range(20):
            await say(socket, type="ask", prompt="hello")
        reported = [one for one in [await heard(socket) for _ in range(20)] if one["type"] == "refused"]
    assert {one["error"]["code"] for one in reported} == {"rate_limited"}
    assert all(one["retry_after_s"] > 0 for one in reported)


def bearer(user: str, life_s: float) -> dict[str, str]:
    return {"Authorization": f"Bearer {jwt.encode({'sub': user, 'exp': time.time() + life_s}, SECRET)}"}


LIVES_S = (3, 60)
"""Of tokens: the second one is for a gateway that was given no processor before the first one had ended."""


async def test_an_answer_that_nobody_knows_is_not_found(guarded: GatewayProcess) -> None:
    async with opened(guarded, additional_headers=bearer("una", 600)) as socket:
        await say(socket, type="follow", request_id="unknown-request")
        assert (await heard(socket))["type"] == "following"
        assert (await heard(socket))["error"]["code"] == "not_found"


async def test_a_connection_ends_with_its_token(guarded: GatewayProcess) -> None:
    for life_s in LIVES_S:
        with contextlib.suppress(InvalidStatus):
            async with opened(guarded, additional_headers=bearer("lena", life_s)) as socket:
                with pytest.raises(ConnectionClosed) as closed:
                    await heard(socket)
            break
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 3000


async def test_a_stream_ends_with_its_token_and_without_an_end(guarded: GatewayProcess) -> None:
    async with httpx.AsyncClient(base_url=guarded.url, timeout=60) as http, asyncio.timeout(240):
        asked = await http.post("/v1/requests", json={"prompt": "no worker answers"}, headers=bearer("lena", 600))
        path = asked.json()["events"]
        for life_s in LIVES_S:
            headers = bearer("lena", life_s)
            async with http.stream("GET", path, headers=headers) as stream:
                with contextlib.suppress(httpx.RemoteProtocolError):
                    assert not [line async for line in stream.aiter_lines() if line.startswith("data:")]
            if stream.status_code == 200:
                break
        assert stream.status_code == 200
        assert (await http.get(path, headers=headers)).status_code == 401
