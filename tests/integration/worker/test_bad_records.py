"""Rubbish between good requests: each ends as documented, and no other request is affected."""

from __future__ import annotations

import pytest

from app.wire.event import EventType
from tests.bad_records import BAD, Bad
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
async def test_a_bad_record_is_a_dead_letter_and_its_sender_is_told_where_possible(client: Client, bad: Bad) -> None:
    user = client.user()
    request_id = f"bad-{user}"
    key, value = bad.of(user, request_id)
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
    reported = [answer for (_, answered), answer in client.reader.rule.answers.items() if answered == request_id]
    if not bad.is_reported:
        assert not reported
        return
    (answer,) = reported or [await client.answer(user, request_id)]
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


async def test_a_request_without_ids_has_its_place_and_its_key(client: Client) -> None:
    user = client.user()
    partition, offset = await client.send("requests", {"prompt": "hello", "max_tokens": 2}, user)
    assert (await client.answer(user, f"{partition}-{offset}")).text
    (turn,) = await client.turns_of(user, 1)
    assert turn.request_id == f"{partition}-{offset}"


async def test_a_refusal_without_a_request_id_is_told_to_the_reader_and_to_the_operator(
    client: Client, worker: WorkerProcess
) -> None:
    user = client.user()
    partition, offset = await client.send("requests", {"id": "7", "text": "hello"}, user)
    end = (await client.answer(user, f"{partition}-{offset}")).end
    assert end is not None
    assert end.error is not None
    assert "the record has `id` and `text`, which a request does not know" in end.error.message
    assert (
        f"requests[{partition}]@{offset} is refused: invalid_request: exactly one of prompt" in worker.log.read_text()
    )


async def test_a_request_without_user_and_key_names_all_that_is_missing(client: Client, worker: WorkerProcess) -> None:
    partition, offset = await client.send("requests", {"id": "7"}, None)
    letter = await client.dead_letter("requests", partition, offset)
    message = dict(letter.headers)["error-message"]
    assert message is not None
    assert message.startswith(b"`user_id` and `prompt` are missing")
    assert message.decode() in worker.log.read_text()
