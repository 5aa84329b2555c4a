"""Bodies whose elements are too many are refused before they are decoded."""

from __future__ import annotations

import asyncio
import gzip
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from app.gateway.asking import reading
from app.gateway.asking.gateway import Gateway
from app.gateway.asking.reading import parse, read_message, read_parameters
from app.gateway.callers.rates import RateLimits
from app.gateway.edge.bodies import Bodies
from app.gateway.edge.bounds import MAX_ITEMS
from app.gateway.edge.errors import ApiError
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.openai.chat_body import ChatBody
from app.settings import Settings
from app.wire.request import MAX_MESSAGES


def gateway_with(**settings: Any) -> Gateway:
    limits = RateLimits(Settings(_env_file=None, **settings), GatewayMetrics())
    return cast(Gateway, SimpleNamespace(bodies=Bodies(64 << 20), limits=limits))


def request_with(body: object, gateway: Gateway | None = None, holder: str = "nina") -> Request:
    """`body` is a value, or the JSON itself."""
    raw = body if isinstance(body, str) else json.dumps(body)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": raw.encode(), "more_body": False}

    app = SimpleNamespace(state=SimpleNamespace(gateway=gateway or gateway_with()))
    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers, "app": app}, receive)
    request.state.caller = SimpleNamespace(holder=holder)
    return request


WHY = {
    "messages": (MAX_MESSAGES, f"messages: are more than {MAX_MESSAGES}"),
    "input": (MAX_ITEMS, f"input: has more than {MAX_ITEMS} items"),
}


@pytest.mark.parametrize("field", WHY)
async def test_too_many_elements_are_refused_before_they_are_decoded(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, why = WHY[field]
    monkeypatch.setattr(reading, "as_written", None)
    body = {"model": "demo", field: [{"role": "user", "content": "S"}] * (most + 1)}
    with pytest.raises(ApiError) as refused:
        await read_parameters(request_with(body), ChatBody)
    assert (refused.value.status, refused.value.param, refused.value.message) == (400, field, why)
    with pytest.raises(ApiError) as refused_on_a_socket:
        parse(json.dumps(body), ChatBody)
    assert refused_on_a_socket.value.body == refused.value.body


async def test_as_many_as_allowed_are_read() -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "S"}] * MAX_MESSAGES}
    parsed, _ = await read_parameters(request_with(body), ChatBody)
    assert len(parsed.messages) == MAX_MESSAGES


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (r'{"prompt": "\ud800"}', None, "half of a surrogate pair, as \\ud83d without \\ude00, is no character"),
        (r'{"prompt": "\ud83d\ude00", "seed": tru}', None, "invalid character"),
        ('{"prompt": NaN}', None, "invalid character"),
        ('{"seed": ' + 5000 * "9" + "}", "seed", "seed: Integer value out of range"),
    ],
)
async def test_what_cannot_be_decoded_is_named(body: str, param: str | None, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        await read_parameters(request_with(body), ChatBody)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert message in refused.value.message


LARGE = {"stop": 5, "metadata": {"a": [{"a": [1]}] * 5000}}


async def steps_until(done: asyncio.Task[Any]) -> int:
    """How many steps of the loop others get meanwhile."""
    steps = 0
    while not done.done():
        steps += 1
        await asyncio.sleep(0)
    return steps


@pytest.mark.parametrize("is_socket", [False, True])
async def test_one_body_of_a_key_is_decoded_at_a_time(monkeypatch: pytest.MonkeyPatch, *, is_socket: bool) -> None:
    gateway, decoding, most = gateway_with(), [], 0
    parsed = reading._parsed

    async def watched(raw: bytes, kind: Any) -> Any:
        nonlocal most
        decoding.append(raw)
        most = max(most, len(decoding))
        try:
            return await parsed(raw, kind)
        finally:
            decoding.remove(raw)

    monkeypatch.setattr(reading, "_parsed", watched)

    def sent(holder: str) -> Any:
        if is_socket:
            return read_message(gateway, holder, json.dumps(LARGE), ChatBody)
        return read_parameters(request_with(LARGE, gateway, holder), ChatBody)

    results = await asyncio.gather(*(sent("mallory") for _ in range(20)), return_exceptions=True)
    assert all(isinstance(one, ApiError) and one.status == 400 for one in results)
    assert most == 1
    await asyncio.gather(sent("mallory"), sent("nina"), return_exceptions=True)
    assert most == 2
    assert not gateway.bodies.held


async def test_others_have_turns_between_small_messages_of_many_sockets() -> None:
    gateway = gateway_with()
    flood = [asyncio.create_task(read_message(gateway, "mallory", "{}", ChatBody)) for _ in range(50)]
    assert await steps_until(flood[-1]) >= 50
    await asyncio.gather(*flood, return_exceptions=True)


async def test_bodies_that_are_refused_cost_requests() -> None:
    gateway = gateway_with(gateway_requests_per_min=3)
    good = {"messages": [{"role": "user", "content": "hi"}]}
    for _ in range(5):
        await read_parameters(request_with(good, gateway), ChatBody)  # the limits of its user count it
    for _ in range(3):
        with pytest.raises(ApiError, match="stop"):
            await read_parameters(request_with({"stop": 5}, gateway), ChatBody)
    with pytest.raises(ApiError, match="refused") as refusal:
        await read_parameters(request_with(good, gateway), ChatBody)
    assert refusal.value.status == 429
    with pytest.raises(ApiError, match="refused"):
        await read_message(gateway, "nina", "{}", ChatBody)
    await read_parameters(request_with(good, gateway, "omar"), ChatBody)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (gzip.compress(b'{"messages": []}'), None),
        (gzip.compress(b" " * (reading.MAX_BODY_BYTES + 1)), 413),
        (gzip.compress(b'{"messages": []}')[:-1], 400),
        (b"{}", 400),
        (gzip.compress(b" " * (64 << 20)), 413),
    ],
)
async def test_bodies_that_are_compressed_have_the_same_limit(raw: bytes, status: int | None) -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": raw, "more_body": False}

    request = request_with({})
    headers = [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
    request = Request({**request.scope, "headers": headers}, receive)
    if status is None:
        assert (await read_parameters(request, ChatBody))[0].messages == ()
        return
    with pytest.raises(ApiError) as refusal:
        await read_parameters(request, ChatBody)
    assert refusal.value.status == status


async def test_brackets_of_a_text_are_no_objects() -> None:
    said = {"messages": [{"role": "user", "content": "{[" * 20_000}]}
    message, _ = await read_parameters(request_with(said), ChatBody)
    assert message.messages[0].content == "{[" * 20_000
    with pytest.raises(ApiError, match="the body has more than 25000 objects and lists") as refused:
        await read_parameters(request_with({"messages": [], "metadata": [[]] * 25_001}), ChatBody)
    assert refused.value.status == 413
