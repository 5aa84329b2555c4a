"""`[[pages]]` over HTTP: paths of one's own, read by clients that know nothing of Parley: requests and curl."""

from __future__ import annotations

import asyncio
import json
import shutil

import httpx
import pytest
import requests
from websockets.exceptions import InvalidStatus

from tests.integration.gateway.events import blocks
from tests.integration.gateway.pages.place import WHOLE, Place, read
from tests.integration.gateway.test_socket import opened
from tests.integration.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINES = "".join(WHOLE).replace("\r\n", "\n").replace("\r", "\n")
"""What an `EventSource` can be told of it."""


def events_of(body: str) -> list[tuple[str, str | None]]:
    """Each block's id and data, by the lines that the standard knows."""
    found = []
    for block in body.split("\n\n"):
        lines = [line.partition(": ") for line in block.split("\n") if line and not line.startswith(":")]
        data = [value for name, _, value in lines if name == "data"]
        ids = [value for name, _, value in lines if name == "id"]
        if ids:
            found.append((ids[-1], "\n".join(data) if data else None))
    return found


async def test_a_get_is_answered_by_the_text_as_it_comes(place: Place) -> None:
    reply, text, _ = await read(place.url("/generate"), params={"prompt": "everything", "odd": "1"})
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert text == "".join(WHOLE)
    assert (reply.headers["x-accel-buffering"], reply.headers["cache-control"]) == ("no", "no-store")
    assert reply.headers["x-parley-ignored"] == "odd"
    (asked,) = place.scripted.requests
    assert (asked.request_id, asked.user_id) == (reply.headers["x-request-id"], "dev")
    assert asked.conversation_id == asked.request_id, "each call is a conversation of its own"


async def test_a_text_is_shown_before_its_answer_has_ended(place: Place) -> None:
    async with place.http() as http, http.stream("GET", "/generate", params={"prompt": "soon pause later"}) as reply:
        parts = reply.aiter_text()
        assert await anext(parts) == "soon "
        place.scripted.goes_on.set()
        assert "".join([part async for part in parts]) == "pause later "


async def test_a_post_has_the_text_under_the_type_of_a_stream(place: Place) -> None:
    body = {"prompt": "everything", "userId": "nina", "conversation_id": "talk"}
    reply, text, _ = await read(place.url("/chat"), "POST", json=body)
    assert (reply.headers["content-type"], text) == ("text/event-stream; charset=utf-8", "".join(WHOLE))
    (asked,) = place.scripted.requests
    assert (asked.user_id, asked.conversation_id) == ("nina", "talk")
    refused = await read(place.url("/chat"), "POST", data=json.dumps(body))
    assert refused.reply.status_code == 415, "a form of another site must not ask"
    misnamed = await read(place.url("/chat"), "POST", json={"text": "a"})
    assert json.loads(misnamed.text)["error"]["message"] == "prompt: is missing; without effect: text"


async def test_reasoning_and_notices_are_no_text(place: Place) -> None:
    whole = await read(place.url("/generate"), params={"prompt": "one two three four", "reasoning_effort": "high"})
    assert whole.text == "three four "


async def test_an_error_before_the_text_is_a_status_and_behind_it_a_cut(place: Place) -> None:
    for path, query in (("/generate", "prompt"), ("/chat", "query")):
        refused = await read(place.url(path), params={query: "fail"})
        assert refused.error == (500, "engine_error")
        assert refused.reply.headers["cache-control"] == "no-store"
        cut = await read(place.url(path), params={query: "one two fail"})
        assert (cut.reply.status_code, cut.is_whole, "two" in cut.text) == (200, False, True)
    assert "without completing response" not in place.gateway.log.read_text()


async def test_an_answer_that_is_cancelled_does_not_look_whole(place: Place) -> None:
    for path, query in (("/generate", "prompt"), ("/chat", "query")):
        request_id = f"gone{len(path)}"
        reading = asyncio.create_task(read(place.url(path), params={query: "one two wait", "request_id": request_id}))
        await until(lambda: request_id in place.scripted.cancelled)  # noqa: B023
        async with place.http() as http:
            await http.delete(f"/v1/requests/{request_id}")
        cut = await reading
        assert (cut.reply.status_code, cut.is_whole, "two" in cut.text) == (200, False, True)
    last = events_of(cut.text)[-1][0]
    again = await read(place.url("/chat"), params={"query": "x"}, headers={"Last-Event-ID": last})
    assert again.error == (409, "cancelled")


async def test_what_cannot_be_asked_is_told_in_the_names_of_the_page(place: Place) -> None:
    for query, why in {
        "": "query: is missing",
        "prompt=a&qury=b": "query: is missing; without effect: prompt, qury (did you mean query?)",
        "query=a&request_id=" + "x" * 300: "request_id: must be 1-64 of",
        "query=a&session=" + "x" * 129: "session: must have 1-128 characters",
        "query=": "query: ",
        "query=a&query=b": "query: is there twice",
        "query=a&n=many": "at `n`",
        "query=a&n=0": "n: must be at least 1",
        "query=a&session=b&user_id=c": "session: the query and the body name different users",
        "query=%ff": "the URL is not UTF-8",
    }.items():
        refused = await read(place.url(f"/chat?{query}"))
        assert refused.error == (400, "invalid_request"), query
        assert why in json.loads(refused.text)["error"]["message"]
    assert not place.scripted.requests


async def test_each_data_is_text_and_an_id_continues_without_asking_again(place: Place) -> None:
    ask = {"query": "everything", "session": "nina"}
    reply, body, _ = await read(place.url("/chat"), params=ask)
    events = events_of(body)
    request_id = reply.headers["x-request-id"]
    assert "".join(data or "" for _, data in events) == LINES
    assert events[0] == (f"{request_id}:0", None), "it leaves with the head"
    assert events[-1][0] == f"{request_id}:{len(WHOLE) + 1}"
    texts = [data for _, data in events if data is not None]
    for number, (last, data) in enumerate(one for one in events if one[1] is not None):
        again = await read(place.url("/chat"), params=ask, headers={"Last-Event-ID": last})
        rest = "".join(data or "" for _, data in events_of(again.text))
        expected = "".join(texts[number + 1 :])
        assert rest.lstrip("\n") == expected.lstrip("\n"), "half of a line end may be there twice"
        assert data is not None
    behind = await read(place.url("/chat"), params=ask, headers={"Last-Event-ID": events[-1][0]})
    assert (behind.reply.status_code, behind.text) == (204, "")
    assert len(place.scripted.requests) == 1


async def test_an_id_of_nothing_asks_nothing(place: Place) -> None:
    for last, status in {"7": 400, "a b:1": 400, "no-such-request:3": 404, "x:-1": 400, f"x:{2**60}": 400}.items():
        refused = await read(place.url("/chat"), params={"query": "a"}, headers={"Last-Event-ID": last})
        assert refused.reply.status_code == status, last
    assert not place.scripted.requests


async def test_a_reconnect_waits_for_its_status(hasty: Place) -> None:
    """A head that leaves earlier would be followed by a cut, and `EventSource` would come again for ever."""
    hasty.scripted.scripts["no text"] = ["", "pause", "fail", "never"]
    ask = {"query": "no text", "reasoning_effort": "high", "request_id": "slow"}
    asking = asyncio.create_task(read(hasty.url("/chat"), params=ask))
    await until(lambda: bool(hasty.scripted.requests))
    again = asyncio.create_task(read(hasty.url("/chat"), params={"query": "x"}, headers={"Last-Event-ID": "slow:0"}))
    await asyncio.sleep(1.5)
    hasty.scripted.goes_on.set()
    assert (await again).error == (500, "engine_error")
    assert not (await asking).is_whole


async def test_what_waits_says_so_and_its_error_is_the_status_of_the_reconnect(hasty: Place) -> None:
    hasty.scripted.scripts["no text"] = ["", "pause", "fail", "never"]
    ask = {"query": "no text", "reasoning_effort": "high"}  # half of the words
    async with hasty.http() as http, http.stream("GET", "/chat", params=ask) as reply:
        parts = reply.aiter_text()
        seen = await anext(parts)
        while seen.count(": waiting") < 3:
            seen += await anext(parts)
        ((first, _),) = events_of(seen)
        assert (reply.status_code, first) == (200, f"{reply.headers['x-request-id']}:0")
        hasty.scripted.goes_on.set()
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in parts:
                pass
    again = await read(hasty.url("/chat"), params={"query": "x"}, headers={"Last-Event-ID": first})
    assert again.error == (500, "engine_error")


async def test_a_page_of_events_is_as_v1_chat(place: Place) -> None:
    async with place.http() as http, http.stream("GET", "/events", params={"prompt": "hello"}) as reply:
        sent = [one async for one in blocks(reply)]
        assert (reply.status_code, [one.event["type"] for one in sent]) == (200, ["notice", "token", "done"])
        own = sent[0].event["request_id"]
        assert [one.event["conversation_id"] for one in sent] == [own] * 3
    async with place.http() as http:
        assert (await http.get("/events", params={"prompt": "a"}, headers={"Last-Event-ID": "1"})).status_code == 204
    assert len(place.scripted.requests) == 1


async def test_other_methods_ask_nothing(place: Place) -> None:
    for method, path, status in (
        ("HEAD", "/generate?prompt=a", 405), ("POST", "/generate", 405), ("DELETE", "/chat", 405),
        ("OPTIONS", "/chat", 405), ("GET", "/socket", 404), ("HEAD", "/socket", 404), ("GET", "/Chat?query=a", 404),
        ("GET", "/chat/x?query=a", 404), ("GET", "/x%2f..%2fchat?query=a", 404),
    ):  # fmt: skip
        assert (await read(place.url(path), method)).reply.status_code == status, (method, path)
    with pytest.raises(InvalidStatus) as refused:
        async with opened(place.gateway, "/generate"):
            pass
    assert refused.value.response.status_code == 404
    assert not place.scripted.requests
    assert (await read(place.url("/generate/"), params={"prompt": "slash"})).text == "slash ", "as every path"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("version", ["--http1.0", "--http1.1"])
async def test_curl_prints_the_text(place: Place, version: str) -> None:
    done = await asyncio.create_subprocess_exec(
        "curl", "-sSN", version, place.url("/generate?prompt=everything"), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(done.communicate(), 60)
    assert (done.returncode, out.decode()) == (0, "".join(WHOLE))


async def test_pages_are_counted_by_their_paths(place: Place) -> None:
    def counted(route: str, status: int) -> float:
        lines = requests.get(place.url("/metrics"), timeout=60).text.splitlines()
        labels = f'parley_gateway_replies_total{{method="GET",route="{route}",status="{status}"}} '
        return sum(float(line.removeprefix(labels)) for line in lines if line.startswith(labels))

    kinds = [("/generate", 200), ("/chat", 200), ("/chat", 400), ("other", 404)]
    before = [counted(*kind) for kind in kinds]
    for path in ("/generate?prompt=a", "/chat?query=a", "/chat?query=", "/elsewhere"):
        await read(place.url(path))
    assert [counted(*kind) for kind in kinds] == [count + 1 for count in before]
