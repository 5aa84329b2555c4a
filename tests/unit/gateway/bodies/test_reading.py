"""Bodies whose elements are too many are refused before they are decoded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from app.gateway.bodies import reading
from app.gateway.bodies.reading import parse, read_parameters
from app.gateway.errors import ApiError
from app.gateway.limits.bounds import MAX_ITEMS
from app.gateway.openai.chat_body import ChatBody
from app.wire.limits import MAX_MESSAGES


class Bodies:
    @contextmanager
    def body(self, _holder: str) -> Iterator[Any]:
        yield SimpleNamespace(add=lambda _size: None)


def request_with(body: object) -> Request:
    """`body` is a value, or the JSON itself."""
    raw = body if isinstance(body, str) else json.dumps(body)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": raw.encode(), "more_body": False}

    app = SimpleNamespace(state=SimpleNamespace(gateway=SimpleNamespace(bodies=Bodies())))
    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "method": "POST", "path": "/", "headers": headers, "app": app}, receive)
    request.state.caller = SimpleNamespace(holder="nina")
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
