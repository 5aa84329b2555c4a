"""The two policies of docs/edge-first.md: an edge whose link to the centre is up, slow, cut, silent, and back."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from app.local.kafka import KafkaCluster
from app.local.ports import free_port
from app.wire.codec import decode
from app.wire.event import FALLBACK, TokenEvent
from tests.faults.proxy import Proxy
from tests.faults.worker_process import WorkerProcess
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker, module_settings

PAGE = (Path(__file__).parents[3] / "docs" / "edge-first.md").read_text()
EDGE, CENTRAL = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
KEY = "key-of-the-north-0123"
LONG = "How long does delivery take to the islands in the north, if the parcel is heavy and it is winter?"


class Link:
    """From the edge to the centre, in a thread of its own, because it outlives a test's event loop."""

    def __init__(self, target_port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._proxy = Proxy(target_port)
        self._target_port = target_port

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._proxy.__aenter__(), self._loop).result(60)
        self.port = self._proxy.port
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._proxy.__aexit__(None, None, None), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    @property
    def calls(self) -> int:
        return self._proxy.connections

    def cut(self) -> None:
        self._proxy.target_port = free_port()
        self._loop.call_soon_threadsafe(self._proxy.reset)

    def slow(self, delay_s: float) -> None:
        self._proxy.delay_s = delay_s

    def silence(self) -> None:
        self._proxy.silent = True

    def mend(self) -> None:
        self._proxy.target_port = self._target_port
        self._proxy.delay_s, self._proxy.silent = 0.0, False
        self._loop.call_soon_threadsafe(self._proxy.reset)


@pytest.fixture(scope="module")
def link(kafka: KafkaCluster, start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Link]:
    folder = tmp_path_factory.mktemp("central")
    (folder / "central.toml").write_text(CENTRAL)
    central = start_worker(
        policy=folder / "central.toml",
        gateway_api_keys=f"{KEY}=edge/north",
        gateway_store=False,
        paced_tokens_per_s=40.0,
    )
    with (
        GatewayProcess(central.settings, folder / "gateway.log") as gateway,
        Link(gateway.settings.gateway_port) as link,
    ):
        yield link


@pytest.fixture(scope="module")
def worker(kafka: KafkaCluster, link: Link, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """The edge. Its policy is the page's, but for the address, and for times that a test would wait for, or
    that a machine without a free processor would take.
    """
    policy = EDGE
    for told, here in (
        ("https://parley.example.com/v1", f"http://127.0.0.1:{link.port}/v1"),
        ("silence_s = 5 ", "silence_s = 25 "),
        ("retry_s = 30", "retry_s = 2"),
    ):
        assert policy.count(told) == 1
        policy = policy.replace(told, here)
    folder = tmp_path_factory.mktemp("edge")
    (folder / "edge.toml").write_text(policy)
    settings = module_settings(kafka, folder, policy=folder / "edge.toml", paced_tokens_per_s=1000.0)
    with WorkerProcess(settings, folder / "worker.log", CENTRAL_KEY=KEY) as edge:
        edge.wait_owning(settings.partitions)
        yield edge


@pytest.fixture(autouse=True)
def mended(link: Link) -> Iterator[None]:
    yield
    link.mend()


async def central_again(client: Client) -> None:
    async with asyncio.timeout(120):
        while not (await client.asked(client.user(), LONG, max_tokens=2)).end.model_version.startswith("central@"):
            await asyncio.sleep(0.3)


async def test_short_prompts_stay_and_long_ones_are_answered_by_the_centre(client: Client, link: Link) -> None:
    before, user = link.calls, client.user()
    short = await client.asked(user, "Hi", max_tokens=5)
    assert (short.end.model_version, link.calls) == ("paced@1", before)
    long = await client.asked(user, LONG, max_tokens=5)
    assert (long.end.model_version, long.end.finish_reason) == ("central@default", "length")
    assert len(long.text.split()) == 5
    assert [turn.route for turn in await client.turns_of(user, 2)] == ["edge", "central"]


async def test_a_slow_link_is_a_slow_answer(client: Client, link: Link) -> None:
    await central_again(client)
    link.slow(0.3)
    began = time.monotonic()
    answer = await client.asked(client.user(), LONG, max_tokens=20)
    assert (answer.end.model_version, answer.end.finish_reason) == ("central@default", "length")
    assert time.monotonic() - began > 0.6


@pytest.mark.parametrize("how", ["cut", "silence"])
async def test_a_link_that_fails_in_mid_answer_leaves_the_rest_to_the_edge(
    client: Client, link: Link, how: str
) -> None:
    await central_again(client)
    user = client.user()
    request_id = await client.ask(user, LONG, max_tokens=2400)  # a minute of the centre, seconds of the edge
    begun = (await client.begun(user, request_id, 20)).text
    getattr(link, how)()
    answer = await client.answer(user, request_id)
    assert answer.complete
    assert answer.end.finish_reason == "length"
    assert answer.text.startswith(begun)
    assert {event.model_version for event in answer.segments} == {"central@default", "paced@1"}
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    assert [e.notice.code for e in events if e.request_id == request_id and e.notice].count(FALLBACK) == 1
    (turn,) = await client.turns_of(user, 1)
    assert (turn.answer, turn.route) == (answer.text, "central")


async def test_without_a_link_the_edge_answers_and_the_centre_does_when_it_is_back(client: Client, link: Link) -> None:
    await central_again(client)
    link.cut()
    for _ in range(4):
        answer = await client.asked(client.user(), LONG, max_tokens=5)
        assert (answer.end.model_version, answer.end.finish_reason) == ("paced@1", "length")
    before = link.calls
    await asyncio.gather(*(client.asked(client.user(), LONG, max_tokens=2) for _ in range(10)))
    assert link.calls - before < 10, "while it is left out, requests do not try it one by one"
    link.mend()
    await central_again(client)
