"""`[[pages]]` over WebSockets, and whose pages they are: keys and limits, the policy that changes, the document."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import requests
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.integration.gateway.pages.place import WHOLE, Place, read, text
from tests.integration.gateway.test_socket import heard, opened, say, up_to_the_end
from tests.integration.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def error(socket: ClientConnection, request_id: str | None = None) -> dict[str, Any]:
    """The whole of a turn that has failed: the error, and the empty message."""
    told = await heard(socket)
    assert await text(socket) == ""
    assert request_id in {None, told.get("request_id")}
    return dict(told["error"])


async def test_a_socket_gets_the_texts_in_the_order_of_its_questions(place: Place) -> None:
    async with opened(place.gateway, "/socket") as socket:
        first = {"request_id": "a", "user_id": "ann", "text": "first pause then"}
        second = {"request_id": "b", "user_id": "nina", "text": "everything"}
        await say(socket, **first, unknown=1)
        await say(socket, **second)
        assert await socket.recv() == "first "
        await until(lambda: len(place.scripted.requests) == 2)
        await say(socket, **first)
        for _ in range(40):
            await say(socket, txt="third")
        await say(socket, text="fourth")
        place.scripted.goes_on.set()
        assert [await text(socket), await text(socket)] == ["pause then ", "".join(WHOLE)], "errors have their turn"
        assert (await error(socket, "a"))["message"] == "request_id: this request is being answered on this connection"
        for _ in range(40):
            told = await error(socket)
            assert told["message"] == "text: is missing; without effect: txt (did you mean text?)"
        assert await text(socket) == "fourth "
        await say(socket, **second)
        assert await text(socket) == "".join(WHOLE), "it is answered once, and told again"


async def test_an_error_is_a_message_before_the_text_and_a_close_behind_it(place: Place) -> None:
    async with opened(place.gateway, "/socket") as socket:
        for message, param in (
            ("{", None), ("[]", None), ('{"prompt": "a"}', "text"), ('{"text": 3}', "text"), ('{"text": ""}', "text"),
            (json.dumps({"text": "a", "request_id": "x" * 300}), "request_id"),
            ('{"text": "a", "messages": [{"role": "user", "content": "b"}]}', "messages"),
        ):  # fmt: skip
            await socket.send(message)
            told = await error(socket)
            assert (told["code"], told["param"]) == ("invalid_request", param), told
        await say(socket, request_id="c", text="fail")
        assert (await error(socket, "c"))["code"] == "engine_error"
        await say(socket, text="fine")
        assert await text(socket) == "fine "
        await say(socket, text="so far fail")
        with pytest.raises(ConnectionClosed) as closed:
            await text(socket)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1011


async def test_a_socket_of_events_and_one_that_leaves(place: Place) -> None:
    async with opened(place.gateway, "/socket/events") as socket:
        await say(socket, request_id="d", text="one two", unknown=1)
        asked = await heard(socket)
        assert (asked["type"], asked["request_id"], asked["ignored"]) == ("asked", "d", ["unknown"])
        assert [one["type"] for one in await up_to_the_end(socket)] == ["notice", "token", "token", "done"]
        await say(socket, request_id="e", text="one pause two")
        while (await heard(socket))["type"] != "token":
            pass
    place.scripted.goes_on.set()
    async with place.http() as http:
        answer = (await http.get("/v1/requests/e/events")).text
    assert '"finish_reason":"stop"' in answer, "it goes on without its reader"


@pytest.mark.asyncio(loop_scope="function")
async def test_keys_and_limits_are_those_of_every_path(guarded_place: Place) -> None:
    place, nina = guarded_place, {"Authorization": "Bearer key-of-nina-0123"}
    url = place.url("/generate?prompt=hello")
    for query in ("", "&key=key-of-nina-0123", "&api_key=key-of-nina-0123", "&authorization=Bearer+key-of-nina-0123"):
        assert (await read(url + query)).error == (401, "unauthorized")
    assert (await read(f"{url}&user_id=omar", headers=nina)).error == (403, "unauthorized")
    with pytest.raises(InvalidStatus) as refused:
        async with opened(place.gateway, "/socket"):
            pass
    assert refused.value.response.status_code == 401
    assert [(await read(url, headers=nina)).text for _ in range(2)] == ["hello "] * 2
    async with opened(place.gateway, "/socket", subprotocols=["parley", "bearer.key-of-nina-0123"]) as socket:
        for _ in range(12):
            await say(socket, text="hello")
        first, *others = [await text(socket) for _ in range(12)]
        assert first == "hello "
        assert any("rate_limited" in one for one in others)
    replies = await asyncio.gather(*(read(url, headers=nina) for _ in range(12)))
    limited = next(one for one in replies if one.reply.status_code != 200)  # a slow one may be allowed again
    assert (limited.error, "retry-after" in limited.reply.headers) == ((429, "rate_limited"), True)
    assert {one.user_id for one in place.scripted.requests} == {"nina"}


@pytest.mark.asyncio(loop_scope="function")
async def test_a_page_appears_and_goes_with_the_policy(own_place: Place) -> None:
    place = own_place

    async def statuses() -> tuple[int, int]:
        new, chat = [await read(place.url(path), params={"q": "a"}) for path in ("/new", "/chat")]
        return new.reply.status_code, chat.reply.status_code

    async def documented() -> set[str]:
        async with place.http() as http:
            paths = (await http.get("/openapi.json")).json()["paths"]
            return {f"{method} {path}" for path, methods in paths.items() for method in methods}

    mine = {"get /generate", "get /chat", "post /chat", "get /events"}
    assert await statuses() == (404, 400)
    assert mine <= await documented()
    place.rewrite('[[pages]]\npath = "/new"\nfields = { prompt = "q" }\nformat = "text"\n')
    await until(lambda: requests.head(place.url("/new"), timeout=60).status_code == 405)
    assert await statuses() == (200, 404)
    assert await documented() & {*mine, "get /new"} == {"get /new"}
    place.rewrite('[[pages]]\npath = "/v1/chat"\n')
    await until(lambda: "the policy before stays in force" in place.gateway.log.read_text())
    assert await statuses() == (200, 404)
    place.rewrite("")
    await until(lambda: requests.head(place.url("/new"), timeout=60).status_code == 404)


async def test_the_document_has_the_names_of_the_pages(place: Place) -> None:
    paths = requests.get(place.url("/openapi.json"), timeout=60).json()["paths"]
    asked, posted = paths["/chat"]["get"], paths["/chat"]["post"]
    named = {one["name"]: one["required"] for one in asked["parameters"]}
    assert named == {"query": True, "session": False, "n": False}
    assert "text/plain" in paths["/generate"]["get"]["responses"]["200"]["content"]
    fields = posted["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"userId", "prompt", "max_tokens"} <= fields.keys()
    assert "user_id" not in fields
