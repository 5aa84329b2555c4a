"""What HTTP clients take for granted."""

from __future__ import annotations

import gzip
import json

import httpx
import pytest

from tests.integration.clients.conftest import HELLO, ORIGIN


async def test_health_version_models_slashes_and_head(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).status_code == 200
    assert "version" in (await http.get("/version")).json()
    listed = (await http.get("/v1/models/")).json()["data"]
    assert [one["id"] for one in listed] == ["demo"]
    assert (listed[0]["root"], listed[0]["max_model_len"]) == ("demo", 1024)
    assert listed[0]["created"] > 0
    head = await http.head("/v1/models")
    assert (head.status_code, head.content) == (200, b"")
    assert (await http.head("/v1/nothing")).status_code == 404


async def test_a_callers_request_id_comes_back_and_errors_have_one(http: httpx.AsyncClient) -> None:
    body = {"messages": HELLO, "max_tokens": 1}
    done = await http.post("/v1/chat/completions", json=body, headers={"X-Request-Id": "mine-1"})
    assert done.headers["x-request-id"] == "mine-1"
    assert done.headers["x-parley-request-id"] == done.json()["parley"]["request_id"]
    refused = await http.post("/v1/chat/completions", json={}, headers={"X-Request-Id": "mine-2"})
    assert (refused.status_code, refused.headers["x-request-id"]) == (400, "mine-2")
    assert (await http.get("/v1/nothing")).headers["x-request-id"]


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip"])
async def test_a_gzip_body_is_read_and_a_bomb_is_not(http: httpx.AsyncClient, encoding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    body = gzip.compress(json.dumps({"messages": HELLO, "max_tokens": 1}).encode())
    assert (await http.post("/v1/chat/completions", content=body, headers=headers)).status_code == 200
    bomb = gzip.compress(b" " * (1 << 26))
    assert (await http.post("/v1/chat/completions", content=bomb, headers=headers)).status_code == 413
    assert (await http.post("/v1/chat/completions", content=body[:-9], headers=headers)).status_code == 400
    assert (await http.post("/v1/chat/completions", content=b"{}", headers=headers)).status_code == 400


async def test_parameters_without_effect_are_reported(http: httpx.AsyncClient) -> None:
    body = {"messages": HELLO, "max_tokens": 1, "service_tier": "flex", "unheard_of": 1, "line\nbreak": 1}
    done = await http.post("/v1/chat/completions", json=body)
    assert done.headers["x-parley-ignored"] == "service_tier, unheard_of, line?break"


async def test_a_page_of_an_allowed_origin_may_call_and_no_other(http: httpx.AsyncClient) -> None:
    path = "/v1/chat/completions"
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    allowed = await http.options(path, headers={**wanted, "Origin": ORIGIN})
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    body = {"messages": HELLO, "max_tokens": 1}
    done = await http.post(path, json=body, headers={"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"})
    assert (done.status_code, done.headers["access-control-allow-origin"]) == (200, ORIGIN)
    other = {"Origin": "https://evil.example"}
    refused = await http.options(path, headers={**wanted, **other})
    assert "access-control-allow-origin" not in refused.headers
    assert (await http.post(path, json=body, headers=other)).status_code == 403


async def test_an_event_source_that_has_the_end_is_told_to_stop(http: httpx.AsyncClient) -> None:
    asked = (await http.post("/v1/requests", json={"prompt": "Hello", "max_tokens": 3})).json()
    events = (await http.get(asked["events"])).text
    ids = [line.removeprefix("id: ") for line in events.splitlines() if line.startswith("id: ")]
    assert [int(ids[-2]) + 1, events.rstrip().splitlines()[-1]] == [int(ids[-1]), f"id: {ids[-1]}"]
    assert (await http.get(asked["events"], headers={"Last-Event-ID": ids[-1]})).status_code == 204
    before = await http.get(asked["events"], headers={"Last-Event-ID": ids[-2]})
    assert (before.status_code, before.text.count('"done"')) == (200, 1)
