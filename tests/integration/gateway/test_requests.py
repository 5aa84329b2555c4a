"""`/v1/requests` over HTTP, with a real worker behind it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from app.wire.codec import encode
from app.wire.control import Erase
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.events import answer, read, text_of
from tests.integration.gateway.gateway_process import GatewayProcess

SEED = 20260


async def ask(http: httpx.AsyncClient, **fields: object) -> str:
    reply = await http.post("/v1/requests", json={"prompt": "hello", "max_tokens": 12, **fields})
    assert reply.status_code == 202, reply.text
    request_id: str = reply.json()["request_id"]
    return request_id


async def test_events_say_the_answer_with_the_next_index_as_id(http: httpx.AsyncClient) -> None:
    sent = await answer(http, await ask(http))
    assert sent[-1].event["type"] == "done"
    tokens = [one for one in sent if one.event["type"] == "token"]
    expected = 0
    for one in tokens:
        assert one.event["index"] == expected
        expected += len(one.event["tokens"])
        assert one.id == str(expected)
    assert sent[-1].id == str(expected) == "12"


async def test_a_look_tells_status_text_and_usage(http: httpx.AsyncClient) -> None:
    request_id = await ask(http)
    sent = await answer(http, request_id)
    reported = (await http.get(f"/v1/requests/{request_id}")).json()
    assert (reported["status"], reported["finish_reason"], reported["index"]) == ("done", "length", 12)
    assert reported["text"] == text_of(sent)
    assert reported["usage"]["completion_tokens"] == 12


async def test_a_stream_dropped_at_any_token_goes_on_with_exactly_the_rest(http: httpx.AsyncClient) -> None:
    draw = random.Random(SEED)
    request_id = await ask(http, max_tokens=100_000)  # until it was dropped often enough
    path = f"/v1/requests/{request_id}/events"
    pieces, place, resumes = [], None, 0
    while not pieces or not pieces[-1].is_end:
        most = draw.randint(1, 4)
        async for one in read(http, path, headers={} if place is None else {"Last-Event-ID": place}):
            pieces.append(one)
            place = one.id or place
            most -= 1
            if not most or one.is_end:
                break
        resumes += 1
        if resumes == 150:
            await http.delete(f"/v1/requests/{request_id}")
    whole = await answer(http, request_id)
    assert resumes >= 150
    assert [one.event for one in pieces if one.id] == [one.event for one in whole if one.id]


async def test_starting_after_is_the_id_of_an_event(http: httpx.AsyncClient) -> None:
    request_id = await ask(http)
    whole = await answer(http, request_id)
    for number, one in enumerate(whole):
        rest = await answer(http, request_id, params={"starting_after": one.id})
        assert rest == (whole[number + 1 :] or whole[-1:])


async def test_a_cancelled_answer_keeps_what_was_said(http: httpx.AsyncClient) -> None:
    request_id = await ask(http, max_tokens=100_000)
    sent = []
    async for one in read(http, f"/v1/requests/{request_id}/events"):
        sent.append(one)
        if len(sent) == 3:
            assert (await http.delete(f"/v1/requests/{request_id}")).status_code == 202
    assert sent[-1].event["finish_reason"] == "cancelled"
    assert (await http.get(f"/v1/requests/{request_id}")).json()["text"] == text_of(sent)
    again = await http.delete(f"/v1/requests/{request_id}")
    assert (again.status_code, again.json()["status"]) == (202, "done")


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"since": 1_700_000_000_000, "until": 1_700_000_000_000}, "until"),
        ({"until": 1_700_000_000}, "until"),  # in seconds
        ({"since": 1 << 70}, "since"),
        ({"conversation_id": ""}, "conversation_id"),
    ],
)
async def test_a_search_that_could_find_nothing_is_refused(
    http: httpx.AsyncClient, given: dict[str, str | int], param: str
) -> None:
    refused = await http.get("/v1/search", params={"q": "anything", **given})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def metric(http: httpx.AsyncClient, name: str) -> float:
    samples = (s for f in text_string_to_metric_families((await http.get("/metrics")).text) for s in f.samples)
    return sum(sample.value for sample in samples if sample.name == name)


async def open_streams(http: httpx.AsyncClient) -> float:
    return await metric(http, "parley_gateway_streams")


async def test_a_reader_that_comes_before_the_request_gets_all_of_it(http: httpx.AsyncClient) -> None:
    before = await open_streams(http)
    early = asyncio.create_task(answer(http, "early-bird"))
    async with asyncio.timeout(120):
        while await open_streams(http) <= before:
            await asyncio.sleep(0.02)
    await ask(http, request_id="early-bird")
    assert await early == await answer(http, "early-bird")


async def test_token_events_that_were_read_are_counted(http: httpx.AsyncClient) -> None:
    async def events() -> float:
        return await metric(http, "parley_gateway_events_total")

    before = await events()
    sent = await answer(http, await ask(http, max_tokens=5))
    assert await events() >= before + len(sent)


async def test_a_user_does_not_see_the_answers_of_another(http: httpx.AsyncClient) -> None:
    request_id = await ask(http)
    await answer(http, request_id)
    assert (await http.get(f"/v1/requests/{request_id}", params={"user_id": "omar"})).status_code == 404


async def test_a_new_gateway_finds_answers_that_are_older_than_itself(
    http: httpx.AsyncClient, gateway: GatewayProcess, tmp_path: Path
) -> None:
    ended, named = await ask(http), await ask(http, request_id="named")
    before = [await answer(http, ended), await answer(http, named)]
    running = await ask(http, max_tokens=200)
    await anext(aiter(read(http, f"/v1/requests/{running}/events")))
    with GatewayProcess(gateway.settings, tmp_path / "gateway.log") as other:
        async with httpx.AsyncClient(base_url=other.url, timeout=60) as there:
            assert [await answer(there, ended), await answer(there, named)] == before
            assert await answer(there, running) == await answer(http, running)
        assert other.stop() == 0


async def test_what_has_left_the_memory_is_read_from_the_log(
    http: httpx.AsyncClient, gateway: GatewayProcess, tmp_path: Path
) -> None:
    constants = {"app.gateway.edge.bounds.HELD_EVENTS": 20}
    with GatewayProcess(gateway.settings, tmp_path / "gateway.log", constants=constants) as other:
        async with httpx.AsyncClient(base_url=other.url, timeout=60) as there:
            asked = [await ask(there) for _ in range(4)]
            first = [await answer(there, one) for one in asked]
            assert [await answer(there, one) for one in asked] == first
            stats = (await there.get("/metrics")).text
    held = next(line for line in stats.splitlines() if line.startswith("parley_gateway_held_events "))
    assert float(held.split()[1]) <= 20


async def test_an_id_that_is_sent_again_leads_to_the_answer_it_has(
    http: httpx.AsyncClient, gateway: GatewayProcess, tmp_path: Path
) -> None:
    first = await answer(http, await ask(http, request_id="sent-twice"))
    with GatewayProcess(gateway.settings, tmp_path / "gateway.log") as other:
        async with httpx.AsyncClient(base_url=other.url, timeout=60) as there:
            assert await answer(there, await ask(there, request_id="sent-twice")) == first


async def test_many_at_once_all_get_their_own_whole_answer(http: httpx.AsyncClient) -> None:
    async def one(number: int) -> int:
        user = {"user_id": f"crowd-{number}"}
        reply = await http.post("/v1/requests", json={"prompt": f"hello {number}", "max_tokens": 8}, params=user)
        sent = await answer(http, reply.json()["request_id"], params=user)
        assert {one.event["user_id"] for one in sent} == {f"crowd-{number}"}
        return int(sent[-1].event["index"])

    assert await asyncio.gather(*map(one, range(40))) == [8] * 40


async def test_conversations_tell_what_was_said_until_it_is_erased(http: httpx.AsyncClient) -> None:
    user = {"user_id": "erin"}
    reply = await http.post(
        "/v1/requests", json={"prompt": "remember me", "conversation_id": "talk", "max_tokens": 3}, params=user
    )
    sent = await answer(http, reply.json()["request_id"], params=user)
    async with asyncio.timeout(120):
        while not (turns := (await http.get("/v1/conversations/talk", params=user)).json()["turns"]):
            await asyncio.sleep(0.1)
    assert [(turn["prompt"], turn["answer"]) for turn in turns] == [("remember me", text_of(sent))]
    listed = (await http.get("/v1/conversations", params=user)).json()["conversations"]
    assert [one["conversation_id"] for one in listed] == ["talk"]
    assert (await http.delete("/v1/users/erin")).status_code == 202
    assert (await http.get("/v1/conversations/talk", params=user)).json()["turns"] == []


async def test_a_history_is_read_a_page_at_a_time(http: httpx.AsyncClient) -> None:
    user = {"user_id": "petra"}
    for number in range(5):
        for conversation in ("long", f"short {number}"):
            body = {"prompt": f"hello {number}", "conversation_id": conversation, "max_tokens": 2}
            await answer(
                http, (await http.post("/v1/requests", json=body, params=user)).json()["request_id"], params=user
            )

    async def pages(path: str, name: str, limit: int) -> tuple[list[Any], int]:
        entries: list[Any] = []
        page, count = {"has_more": True, "last_id": None}, 0
        while page["has_more"]:
            after = {} if page["last_id"] is None else {"after": page["last_id"]}
            page = (await http.get(path, params={**user, **after, "limit": limit})).json()
            entries += page[name]
            count += 1
        return entries, count

    async with asyncio.timeout(120):
        while len((await http.get("/v1/conversations/long", params=user)).json()["turns"]) < 5:
            await asyncio.sleep(0.1)
    turns, count = await pages("/v1/conversations/long", "turns", 2)
    assert [turn["prompt"] for turn in turns] == [f"hello {number}" for number in range(5)]
    assert count == 3
    listed, count = await pages("/v1/conversations", "conversations", 4)
    assert [one["conversation_id"] for one in listed][-1] == "short 0"
    assert {one["conversation_id"]: one["turns"] for one in listed} == {
        "long": 5,
        **{f"short {n}": 1 for n in range(5)},
    }
    assert count == 2
    for path in ("/v1/conversations", "/v1/conversations/long"):
        for wrong in ({"after": "nothing"}, {"limit": 0}, {"limit": 1001}):
            reply = await http.get(path, params={**user, **wrong})
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, next(iter(wrong)))


async def test_a_conversation_is_deleted_alone_and_begins_anew(http: httpx.AsyncClient) -> None:
    user = {"user_id": "elsa"}
    places: dict[str, str] = {}

    async def say(conversation: str, whose: dict[str, str] = user) -> None:
        body = {"prompt": "remember me", "conversation_id": conversation, "max_tokens": 3}
        reply = await http.post("/v1/requests", json=body, params=whose)
        places[conversation] = reply.headers["location"]
        await answer(http, reply.json()["request_id"], params=whose)

    async def listed(whose: dict[str, str]) -> dict[str, int]:
        found = (await http.get("/v1/conversations", params=whose)).json()["conversations"]
        return {one["conversation_id"]: one["turns"] for one in found}

    async def until(whose: dict[str, str], wanted: dict[str, int]) -> None:
        async with asyncio.timeout(120):
            while await listed(whose) != wanted:
                await asyncio.sleep(0.1)

    other = {"user_id": "otto"}
    await say("talk/items\n1", other)
    for conversation in ("talk/items\n1", "stays"):
        await say(conversation)
    await until(user, {"talk/items\n1": 1, "stays": 1})
    await until(other, {"talk/items\n1": 1})
    for _ in range(2):  # of nothing the second time
        reply = await http.delete("/v1/conversations/talk%2Fitems%0A1", params=user)
        assert (reply.status_code, reply.json()) == (
            200,
            {"id": "talk/items\n1", "object": "conversation.deleted", "deleted": True},
        )
    assert await listed(user) == {"stays": 1}
    assert (await http.get("/v1/conversations/talk%2Fitems%0A1/items", params=user)).json()["data"] == []
    assert (await http.get(places["talk/items\n1"], params=user)).status_code == 404
    assert (await http.get(places["stays"], params=user)).json()["status"] == "done"
    assert await listed(other) == {"talk/items\n1": 1}
    await say("talk/items\n1")
    await until(user, {"stays": 1, "talk/items\n1": 1})


async def test_completions_of_their_own_are_no_conversations_until_somebody_goes_on(http: httpx.AsyncClient) -> None:
    user = {"user_id": "greta"}
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    first = (await http.post("/v1/chat/completions", json={**body, "n": 2}, params=user)).json()
    talk = first["parley"]["conversation_id"]
    async with asyncio.timeout(120):
        while not (await http.get(f"/v1/conversations/{talk}", params=user)).json()["turns"]:
            await asyncio.sleep(0.1)
    assert (await http.get("/v1/conversations", params=user)).json()["conversations"] == []
    await http.post("/v1/chat/completions", json={**body, "conversation_id": talk}, params=user)
    async with asyncio.timeout(120):
        while not (listed := (await http.get("/v1/conversations", params=user)).json()["conversations"]):
            await asyncio.sleep(0.1)
    assert [(one["conversation_id"], one["turns"]) for one in listed] == [(talk, 2)]


@pytest.mark.parametrize(
    ("field", "status"),
    [({"deadline_ms": -1}, 400), ({"priority": "x"}, 400), ({"tenant": "foo"}, 400), ({"deadline_ms": 0}, 504)],
)
async def test_a_completion_heeds_the_fields_of_a_request(
    http: httpx.AsyncClient, field: dict[str, object], status: int
) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2, **field}
    reply = await http.post("/v1/chat/completions", json=body, params={"user_id": "hugo"})
    assert reply.status_code == status, reply.text


@pytest.mark.parametrize("named", [{}, {"request_id": "named-by-frida"}])
async def test_what_was_answered_before_an_erase_is_told_no_more(
    http: httpx.AsyncClient, named: dict[str, str]
) -> None:
    user = {"user_id": "frida"}
    asked = await http.post("/v1/requests", json={"prompt": "remember me", "max_tokens": 3, **named}, params=user)
    place = asked.headers["location"]
    assert text_of(await answer(http, asked.json()["request_id"], params=user))
    assert (await http.get(place, params=user)).json()["status"] == "done"
    assert (await http.delete("/v1/users/frida")).status_code == 202
    assert (await http.get(place, params=user)).status_code == 404


async def test_an_erase_that_came_another_way_is_heard_here_too(http: httpx.AsyncClient, worker: WorkerProcess) -> None:
    user = {"user_id": "flora"}
    asked = await http.post("/v1/requests", json={"prompt": "remember me", "max_tokens": 3}, params=user)
    place = asked.headers["location"]
    assert text_of(await answer(http, asked.json()["request_id"], params=user))
    assert (await http.get(place, params=user)).status_code == 200
    async with AIOKafkaProducer(**worker.settings.cluster.options()) as producer:
        value, headers = encode(Erase(user_id="flora"))
        await producer.send_and_wait(worker.settings.topic("controls"), value, key=b"flora", headers=headers)
    async with asyncio.timeout(120):
        while (await http.get(place, params=user)).status_code != 404:
            await asyncio.sleep(0.05)


async def test_what_an_erasure_cuts_short_is_no_turn_of_a_conversation(http: httpx.AsyncClient) -> None:
    user = {"user_id": "erik"}
    for prompt in ("my secret", "another one"):
        asked = {"prompt": prompt, "conversation_id": "cut", "max_tokens": 5000}
        assert (await http.post("/v1/requests", json=asked, params=user)).status_code == 202
    assert (await http.delete("/v1/users/erik")).status_code == 202
    await asyncio.sleep(0.05)  # times are in milliseconds
    asked = {"prompt": "who am I", "conversation_id": "later", "max_tokens": 2}
    assert (await http.post("/v1/requests", json=asked, params=user)).status_code == 202
    async with asyncio.timeout(120):
        while not (listed := (await http.get("/v1/conversations", params=user)).json()["conversations"]):
            await asyncio.sleep(0.1)
    # The partition finishes what the erasure cuts short before it finishes what was asked later.
    assert [one["conversation_id"] for one in listed] == ["later"]
