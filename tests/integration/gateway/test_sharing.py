"""Gateways that share the partitions of `tokens`: each reads its part, and any of them serves any user."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from app.local.kafka import KafkaCluster
from app.settings import Settings
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.events import Sent, answer, text_of
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.gateway.lists_after_answers import KINDS, lists_after_answers
from tests.integration.gateway.test_socket import opened
from tests.integration.worker.conftest import module_settings

JOINED_S = 120.0
KEYS = "a-key-of-nina-0001=nina, a-key-of-tom-00001=acme/tom"
SECRET = "the-secret-between-these-gateways"
NEW = "the-new-secret-between-these-gateways"


@pytest.fixture(scope="module")
def shared_worker(kafka: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    folder = tmp_path_factory.mktemp("worker")
    settings = module_settings(kafka, folder, partitions=4, paced_tokens_per_s=20.0, gateway_wait_s=5.0)
    with WorkerProcess(settings, folder / "worker.log") as worker:
        worker.wait_owning(settings.partitions)
        yield worker


class Gateways:
    """Gateways of one group; each has an address of its own."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self._folder = folder
        self.all: list[GatewayProcess] = []

    def start(self, count: int = 1) -> list[GatewayProcess]:
        begun = []
        for _ in range(count):
            log = self._folder / f"gateway-{len(self.all)}.log"
            gateway = GatewayProcess(self.settings, log, is_shared=True)
            self.all.append(gateway)
            begun.append(gateway.start())
        return begun

    async def divided(self, *gateways: GatewayProcess) -> None:
        """Wait until these have all partitions among them."""
        async with asyncio.timeout(JOINED_S):
            while True:
                parts = [metric(gateway, "parley_gateway_partitions") for gateway in gateways]
                if sum(parts) == self.settings.partitions and all(parts):
                    return
                await asyncio.sleep(0.1)


@pytest.fixture
def gateways(shared_worker: WorkerProcess, tmp_path: Path) -> Iterator[Gateways]:
    started = Gateways(shared_worker.settings, tmp_path)
    yield started
    for gateway in started.all:
        gateway.kill()


def metric(gateway: GatewayProcess, name: str) -> float:
    text = httpx.get(
        gateway.metrics_url if gateway.settings.gateway_api_keys else f"{gateway.url}/metrics", timeout=60
    ).text
    found = re.search(rf"^{name}(?:_total)? (\S+)$", text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


async def streamed(gateway: GatewayProcess, user: str, tokens: int = 20) -> list[Sent]:
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": user}, timeout=60) as http:
        asked = (await http.post("/v1/requests", json={"prompt": f"hi from {user}", "max_tokens": tokens})).json()
        return await answer(http, asked["request_id"])


def is_whole(sent: list[Sent], tokens: int = 20) -> bool:
    events = [one.event for one in sent]
    spans = [(event["index"], len(event["tokens"])) for event in events if event["type"] == "token"]
    indexes = [index for begin, length in spans for index in range(begin, begin + length)]
    return indexes == list(range(tokens)) and events[-1]["type"] == "done"


async def test_sharing_gateways_read_each_event_once_and_serve_any_user(gateways: Gateways) -> None:
    three = gateways.start(3)
    await gateways.divided(*three)
    before = sum(metric(gateway, "parley_gateway_events") for gateway in three)
    users = [f"share-{number}" for number in range(12)]
    found = await asyncio.gather(*(streamed(three[number % 3], user) for number, user in enumerate(users)))
    assert all(map(is_whole, found))
    read = [metric(gateway, "parley_gateway_events") for gateway in three]
    written = sum(one.event["type"] != "notice" for sent in found for one in sent)
    assert written <= sum(read) - before <= 1.2 * written, "each event is read by one gateway"
    assert sum(one > 0 for one in read) == 3
    measured = sum(metric(gateway, "parley_gateway_first_token_seconds_count") for gateway in three)
    assert measured == len(users), "each at the gateway that was asked"


async def test_a_list_has_every_turn_whose_end_was_told_whichever_gateway_told_it(gateways: Gateways) -> None:
    two = gateways.start(2)
    await gateways.divided(*two)
    counts = await lists_after_answers([one.url for one in two], 90)
    assert counts == dict.fromkeys(KINDS, 30)


async def test_what_was_deleted_at_one_gateway_is_deleted_at_the_other_at_once(gateways: Gateways) -> None:
    one, other = gateways.start(2)
    await gateways.divided(one, other)
    for number in range(8):
        async with httpx.AsyncClient(params={"user_id": f"leaver-{number}"}, timeout=60) as http:
            asked = await http.post(f"{one.url}/v1/responses", json={"input": "Hello!", "max_output_tokens": 2})
            path = f"/v1/responses/{asked.json()['id']}"
            assert (await http.get(other.url + path)).status_code == 200
            await http.delete(one.url + path)
            assert (await http.get(other.url + path)).status_code == 404
            user = f"/v1/users/leaver-{number}"
            assert (await http.delete(one.url + user)).status_code == 202
            assert (await http.get(f"{other.url}{user}/erasure")).json()["status"] in {"erasing", "done"}
            assert (await http.get(f"{other.url}/v1/conversations")).json()["conversations"] == []


async def test_sharing_gateways_look_at_and_cancel_answers_of_any_user(gateways: Gateways) -> None:
    one, other = gateways.start(2)
    await gateways.divided(one, other)
    for number in range(4):
        user = {"user_id": f"look-{number}"}
        async with httpx.AsyncClient(params=user, timeout=60) as http:
            asked = (await http.post(f"{one.url}/v1/requests", json={"prompt": "hi", "max_tokens": 100_000})).json()
            place = f"/v1/requests/{asked['request_id']}"
            async with asyncio.timeout(120):
                while (seen := (await http.get(f"{other.url}{place}")).json()).get("status") != "running":
                    await asyncio.sleep(0.1)
            assert seen["index"] > 0
            await http.delete(f"{other.url}{place}")
        async with httpx.AsyncClient(base_url=one.url, params=user, timeout=60) as http:
            events = await answer(http, asked["request_id"])
            assert events[-1].event["finish_reason"] == "cancelled"
            ended = (await http.get(place)).json()
            assert (ended["status"], ended["text"]) == ("done", text_of(events))


async def test_sharing_gateways_give_the_same_events_of_a_background_response(gateways: Gateways) -> None:
    one, other = gateways.start(2)
    await gateways.divided(one, other)
    for number in range(4):
        user = {"user_id": f"background-{number}"}
        async with httpx.AsyncClient(params=user, timeout=120) as http:
            body = {"input": "hi", "max_output_tokens": 20, "background": True}
            name = (await http.post(f"{one.url}/v1/responses", json=body)).json()["id"]
            paths = [f"{gateway.url}/v1/responses/{name}" for gateway in (other, one)]
            live = await asyncio.gather(*(http.get(path, params={**user, "stream": "true"}) for path in paths))
            ended = [(await http.get(path)).json() for path in paths]
        events = [[line for line in reply.text.splitlines() if line.startswith("data: ")] for reply in live]
        assert events[0] == events[1]
        assert ended[0] == ended[1] == json.loads(events[0][-1][6:])["response"]
        assert ended[0]["status"] == "incomplete"


async def test_sharing_gateways_stream_chat_completions_of_any_user(gateways: Gateways) -> None:
    one, other = gateways.start(2)
    await gateways.divided(one, other)
    for number in range(4):
        body = {"model": "default", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "stream": True}
        async with httpx.AsyncClient(base_url=(one, other)[number % 2].url, timeout=60) as http:
            reply = await http.post("/v1/chat/completions", json={**body, "user": f"chat-{number}"})
        chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
        said = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks)
        assert len(said.split()) == 8


async def test_streams_stay_whole_while_gateways_join_leave_and_are_killed(gateways: Gateways) -> None:
    kept, killed, leaving = gateways.start(3)
    await gateways.divided(kept, killed, leaving)
    streams = [asyncio.create_task(streamed(kept, f"storm-{number}", tokens=240)) for number in range(16)]
    async with asyncio.timeout(120):
        while metric(kept, "parley_gateway_first_token_seconds_count") < len(streams):
            await asyncio.sleep(0.1)
    killed.kill()
    await asyncio.sleep(2.0)
    (joined,) = await asyncio.to_thread(gateways.start)
    assert await asyncio.to_thread(leaving.stop) == 0
    found = await asyncio.gather(*streams)
    assert all(is_whole(sent, tokens=240) for sent in found)
    await gateways.divided(kept, joined)


async def test_a_users_limit_holds_across_sharing_gateways(gateways: Gateways) -> None:
    gateways.settings = gateways.settings.model_copy(update={"gateway_requests_per_min": 10})
    three = gateways.start(3)
    await gateways.divided(*three)
    for number in range(3):
        user = {"user_id": f"limit-{number}"}
        async with httpx.AsyncClient(params=user, timeout=60) as http:
            asks = (http.post(f"{three[at % 3].url}/v1/requests", json={"prompt": "hi"}) for at in range(30))
            begun = time.monotonic()
            codes = [reply.status_code for reply in await asyncio.gather(*asks)]
            refilled = (time.monotonic() - begun) * 10 / 60
        assert set(codes) == {202, 429}
        assert 10 <= codes.count(202) <= 11 + refilled


def with_keys(settings: Settings, keys: str = KEYS, secret: str = SECRET) -> Settings:
    return settings.model_copy(update={"gateway_api_keys": keys, "gateway_peer_secret": secret})


async def asked_at_one_and_read_at_another(asked_at: GatewayProcess, read_at: GatewayProcess, key: str) -> list[Sent]:
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=asked_at.url, headers=headers, timeout=60) as http:
        reply = await http.post("/v1/requests", json={"prompt": "hi", "max_tokens": 20})
        assert reply.status_code == 202, reply.text
    async with httpx.AsyncClient(base_url=read_at.url, headers=headers, timeout=60) as http:
        return await answer(http, reply.json()["request_id"])


async def test_the_public_port_serves_no_gateway(gateways: Gateways) -> None:
    gateways.settings = with_keys(gateways.settings)
    (alone,) = gateways.start()
    await gateways.divided(alone)
    for headers in ({}, {"Authorization": f"Bearer {SECRET}"}, {"Authorization": "Bearer a-key-of-nina-0001"}):
        with pytest.raises(InvalidStatus) as refused:
            async with opened(alone, "/internal/gateways", additional_headers=headers):
                pass
        assert refused.value.response.status_code == 404


async def test_sharing_gateways_with_keys_know_each_other_by_their_secret(gateways: Gateways) -> None:
    gateways.settings = with_keys(gateways.settings)
    one, other = gateways.start(2)
    await gateways.divided(one, other)
    for key in ("a-key-of-nina-0001", "a-key-of-tom-00001"):
        assert is_whole(await asked_at_one_and_read_at_another(one, other, key))
    assert SECRET not in one.log.read_text() + other.log.read_text()


async def test_users_notice_nothing_of_a_change_of_keys_and_secret(gateways: Gateways) -> None:
    users = [f"a-key-of-user-{number:04}" for number in range(8)]
    keys = ",".join(f"{key}=user-{number}" for number, key in enumerate(users))
    gateways.settings = with_keys(gateways.settings, keys)
    old, older = gateways.start(2)
    await gateways.divided(old, older)
    gateways.settings = with_keys(gateways.settings, f"{keys},a-key-that-is-new-1=new", f"{NEW},{SECRET}")
    (between,) = gateways.start()
    await gateways.divided(old, older, between)
    gateways.settings = with_keys(gateways.settings, f"{keys},a-key-that-is-new-1=new", NEW)
    (new,) = gateways.start()
    async with asyncio.timeout(JOINED_S):
        while metric(new, "parley_gateway_fleets") != 2:
            await asyncio.sleep(0.1)
    await gateways.divided(old, older, between)
    for asked_at, read_at in ((old, new), (new, between), (between, older), (new, new)):
        found = await asyncio.gather(*(asked_at_one_and_read_at_another(asked_at, read_at, key) for key in users))
        assert all(map(is_whole, found))
    assert await asyncio.to_thread(old.stop) == await asyncio.to_thread(older.stop) == 0
    await gateways.divided(between, new)
    assert all(map(is_whole, [await asked_at_one_and_read_at_another(new, between, key) for key in users]))
    for gateway in gateways.all:
        assert "refused" not in gateway.log.read_text()
