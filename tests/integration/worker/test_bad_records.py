"""Rubbish between good requests: each ends as the contract says, and nobody else notices."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from app.wire.event import EventType
from tests.integration.worker.client import Client


@dataclass(frozen=True)
class Bad:
    """`value` and `key` with `USER` for the user; `told` where the sender gets an error event."""

    name: str
    value: bytes | None
    key: bytes | None = b"USER"
    told: bool = True


def record(**fields: object) -> bytes:
    given = {"request_id": "bad-1", "user_id": "USER", "prompt": "hello", **fields}
    return json.dumps({name: value for name, value in given.items() if value is not ...}).encode()


BAD = [
    Bad("not UTF-8", b"\xff\xfe\xfd", told=False),
    Bad("not JSON", b"hello", told=False),
    Bad("truncated JSON", b'{"request_id": "bad-1", "user_id": "USER"', told=False),
    Bad("NaN", b'{"request_id": "bad-1", "user_id": "USER", "prompt": "x", "temperature": NaN}'),
    Bad("a lone surrogate", b'{"request_id": "bad-1", "user_id": "USER", "prompt": "\\ud800"}'),
    Bad("not an object", b'["bad-1"]', told=False),
    Bad("no value", None, told=False),
    Bad("an empty value", b"", told=False),
    Bad(
        "nesting too deep",
        record(metadata=...)[:-1] + b', "metadata": ' + b'{"a":' * 500 + b"1" + b"}" * 501,
    ),
    Bad("no request_id", record(request_id=...), told=False),
    Bad("a request_id with a blank", record(request_id="a b"), told=False),
    Bad("a request_id that is too long", record(request_id="x" * 65), told=False),
    Bad("a wrong type", record(max_tokens="many")),
    Bad("a boolean for a number", record(max_tokens=True)),
    Bad("no user_id", record(user_id=...)),
    Bad("another user than the key", record(user_id="somebody-else")),
    Bad("no key", record(), key=None),
    Bad("no prompt", record(prompt=...)),
    Bad("an empty prompt", record(prompt="")),
    Bad("both prompt and messages", record(messages=[{"role": "user", "content": "hi"}])),
    Bad("no user message", record(prompt=..., messages=[{"role": "system", "content": "hi"}])),
    Bad("an unknown priority", record(priority="urgent")),
    Bad("max_tokens 0", record(max_tokens=0)),
    Bad("a negative temperature", record(temperature=-1)),
    Bad("a temperature out of range", record(temperature=99)),
    Bad("a top_p out of range", record(top_p=7)),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
async def test_a_bad_record_is_a_dead_letter_and_its_sender_is_told_where_possible(client: Client, bad: Bad) -> None:
    user = client.user()
    request_id = f"bad-{user}"
    value = bad.value and bad.value.replace(b"USER", user.encode()).replace(b"bad-1", request_id.encode())
    key = bad.key and bad.key.replace(b"USER", user.encode())
    before = await client.ask(user, max_tokens=2)
    place = await client.send("requests", value, key)
    after = await client.ask(user, max_tokens=2)

    letter = await client.dead_letter("requests", *place)
    assert (letter.value, letter.key) == (value, key)
    headers = dict(letter.headers)
    assert headers["error-code"] == b"invalid_request"
    assert headers["error-message"]
    assert headers["source-topic"] == client.settings.topic("requests").encode()
    assert int(headers["failed-at"]) > 0
    for good in (before, after):
        end = (await client.answer(user, good)).end
        assert end is not None
        assert end.type is EventType.DONE
    told = [answer for (_, answered), answer in client.reader.rule.answers.items() if answered == request_id]
    if not bad.told:
        assert not told
        return
    (answer,) = told or [await client.answer(user, request_id)]
    assert answer.end is not None
    assert answer.end.error is not None
    assert (answer.end.type, answer.end.error.code, answer.tokens) == (EventType.ERROR, "invalid_request", ())


async def test_a_bad_record_with_a_known_request_id_gets_no_second_end(client: Client) -> None:
    user = client.user()
    request_id = await client.ask(user, max_tokens=2)
    await client.answer(user, request_id)
    place = await client.send("requests", {"request_id": request_id, "user_id": user, "prompt": ""}, user)
    await client.dead_letter("requests", *place)
    await client.asked(user, max_tokens=2)
    ends = [record for record in await client.records("tokens") if f'"{request_id}"'.encode() in record.value]
    assert sum(b'"type":"done"' in record.value or b'"type":"error"' in record.value for record in ends) == 1


@pytest.mark.parametrize("value", [b"rubbish", b'{"type": "dance"}', b"\xff", None, b'{"type": "cancel"}'])
async def test_garbage_on_controls_is_a_dead_letter(client: Client, value: bytes | None) -> None:
    user = client.user()
    partition, offset = await client.send("controls", value, user)
    letter = await client.dead_letter("controls", partition, offset)
    assert dict(letter.headers)["source-topic"] == client.settings.topic("controls").encode()
