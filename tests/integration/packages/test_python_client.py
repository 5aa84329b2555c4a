"""`parley-client` over HTTP and over Kafka: asks, follows, cancels, and goes on after deaths of worker and gateway."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from parley_client import (
    AnswerFailedError,
    AsyncParley,
    Parley,
    ParleyError,
    RefusedError,
    UnreachableError,
    Update,
)
from parley_client.transport import new_request_id

from app.local.ports import free_port
from app.settings import Settings
from tests.faults.proxy import Proxy
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.integration.packages.conftest import MOVED, Workers, hang_until_reconnected, move

WAYS = ["http", "kafka"]


def brokers(settings: Settings) -> str:
    return settings.broker.removeprefix("kafka://")


def client(way: str, gateway: GatewayProcess, settings: Settings, user: str = "nina") -> AsyncParley:
    if way == "http":
        return AsyncParley(gateway.url, user=user, patience_s=240)
    return AsyncParley.kafka(brokers(settings), user=user, prefix=settings.topic_prefix)


@pytest.fixture(params=WAYS)
async def parley(
    request: pytest.FixtureRequest, gateway: GatewayProcess, settings: Settings, workers: Workers
) -> AsyncIterator[AsyncParley]:
    async with client(request.param, gateway, settings) as parley:
        yield parley


def once_at(count: int) -> Callable[[Update[Any]], bool]:
    """True for the first update behind so many tokens; one may have several."""
    passed = False

    def is_there(update: Update[Any]) -> bool:
        nonlocal passed
        before, passed = passed, passed or update.answer.position >= count
        return passed and not before

    return is_there


async def kept(gateway: GatewayProcess, request_id: str, user: str = "nina") -> str:
    """What the gateway has as the answer's text."""
    async with httpx.AsyncClient(base_url=gateway.url, params={"user_id": user}, timeout=60) as http:
        text: str = (await http.get(f"/v1/requests/{request_id}")).raise_for_status().json()["text"]
        return text


async def test_an_answer_comes_in_pieces_and_is_whole(parley: AsyncParley, gateway: GatewayProcess) -> None:
    following = await parley.ask("hello", max_tokens=12)
    pieces = [update.text async for update in following]
    assert len(list(filter(None, pieces))) > 1, "the first token comes alone"
    assert "".join(pieces) == following.answer.text == await kept(gateway, following.request_id)
    assert following.answer.end is not None
    assert following.answer.end["finish_reason"] == "length"
    assert len(following.answer.tokens) == 12


async def test_a_conversation_is_continued(parley: AsyncParley) -> None:
    first = await (await parley.ask("one", conversation="c", max_tokens=2)).result()
    second = await (await parley.ask("two", conversation="c", max_tokens=2)).result()
    assert first.end is not None
    assert second.end is not None
    assert first.conversation_id == "c"
    assert second.end["usage"]["prompt_tokens"] > first.end["usage"]["prompt_tokens"]


async def test_a_turn_is_edited_and_asked_again_and_its_versions_are_walked(
    parley: AsyncParley, gateway: GatewayProcess
) -> None:
    async with AsyncParley(gateway.url, user="nina") as http:
        name = new_request_id()
        asked = await parley.ask("one", conversation=name, max_tokens=4)
        first = await asked.result()
        await (await parley.ask("two", conversation=name, max_tokens=2)).result()
        again = await parley.regenerate(asked.request_id, conversation=name, max_tokens=4)
        await again.result()
        edited = await parley.edit(
            again.request_id,
            "uno",
            conversation=again.answer.conversation_id,
            max_tokens=4,
            replaces=[again.request_id],
        )
        assert edited.answer.conversation_id.startswith(f"{name}~")
        await edited.result()
        branch = await parley.fork(asked.request_id, "three", conversation=name, max_tokens=2)
        await branch.result()
        within = await http.regenerate(asked.request_id, conversation=name, index=3, max_tokens=5, seed=7)
        assert (await within.result()).tokens[:3] == first.tokens[:3]
        ids = [asked.request_id, again.request_id, edited.request_id, within.request_id]
        for of in ids:  # each knows the others, from wherever it is asked
            versions = await http.versions(of, conversation=name)
            assert [one["request_id"] for one in versions] == ids
        assert [one["prompt"] for one in versions] == ["one", "one", "uno", "one"]
        gone_on = await (await http.ask("more", conversation=versions[2]["conversation_id"], max_tokens=2)).result()
        assert gone_on.end is not None
        assert await http.versions(branch.request_id, conversation=branch.answer.conversation_id) == [
            one
            for one in await http.versions(branch.request_id, conversation=name)
            if one["prompt"] == "three" and not one["replaces"]
        ]


async def test_what_followed_an_edit_is_named_with_it(gateway: GatewayProcess, workers: Workers) -> None:
    async with AsyncParley(gateway.url, user="nora") as http:
        ids = []
        for prompt in ("one", "two", "three"):
            ids.append((await http.ask(prompt, max_tokens=2)).request_id)
            await http.follow(ids[-1]).result()
        await (await http.edit(ids[1], "zwei", max_tokens=2)).result()
        (_, version) = await http.versions(ids[1])
        assert version["replaces"] == ids[1:]
        assert [one["prompt"] for one in await http.versions(ids[0])] == ["one"]


async def test_versions_are_the_gateways(settings: Settings) -> None:
    async with AsyncParley.kafka(brokers(settings), user="nina", prefix=settings.topic_prefix) as parley:
        with pytest.raises(ParleyError, match="gateway"):
            await parley.versions("anything")


async def test_another_process_goes_on_where_the_first_has_left(
    parley: AsyncParley, gateway: GatewayProcess, settings: Settings
) -> None:
    following = await parley.ask("a long one", max_tokens=40)
    async for update in following:
        if update.answer.position >= 10:
            break
    await following.leave()
    read = following.answer
    for way in WAYS:
        async with client(way, gateway, settings) as other:
            rest = other.follow(following.request_id, after=read.position)
            text = "".join([update.text async for update in rest])
            assert read.text + text == await kept(gateway, following.request_id)
            whole = await other.follow(following.request_id).result()
            assert whole.text == read.text + text


async def test_a_cancel_ends_the_answer_and_keeps_its_text(parley: AsyncParley) -> None:
    following = await parley.ask("endless", max_tokens=100_000)
    is_there = once_at(5)
    async for update in following:
        if is_there(update):
            await parley.cancel(following.request_id)
    assert following.answer.end is not None
    assert following.answer.end["finish_reason"] == "cancelled"
    assert following.answer.text


@pytest.mark.parametrize("request_id", ["../users/mallory", "..", "a?b#c", "%2e%2e/users/mallory"])
async def test_an_id_names_a_request_and_no_other_resource(
    request_id: str, gateway: GatewayProcess, settings: Settings, workers: Workers
) -> None:
    async with client("http", gateway, settings, user="mallory") as parley:
        following = await parley.ask("hello", max_tokens=2)
        answer = await following.result()
        with pytest.raises(RefusedError):
            await parley.cancel(request_id)
        with pytest.raises(RefusedError):
            await parley.follow(request_id).result()
        assert (await parley.follow(following.request_id).result()).text == answer.text


async def test_an_index_behind_the_end_is_refused_at_once(
    gateway: GatewayProcess, settings: Settings, workers: Workers
) -> None:
    async with client("http", gateway, settings) as parley:
        following = await parley.ask("hello", max_tokens=2)
        await following.result()
        with pytest.raises(RefusedError, match="after: the answer has ended before 9999"):
            await parley.follow(following.request_id, after=9999).result()


async def test_an_error_of_the_worker_is_raised_behind_the_last_update(parley: AsyncParley) -> None:
    following = await parley.ask("hello", previous_request_id="no-such-request")
    with pytest.raises(AnswerFailedError) as failed:
        await following.result()
    assert failed.value.code == "invalid_request"


async def test_the_same_request_id_is_asked_once(parley: AsyncParley, gateway: GatewayProcess) -> None:
    first = await parley.ask("once", max_tokens=5)
    await first.result()
    async with AsyncParley(gateway.url, user="nina") as http:
        again = await http.ask("once", max_tokens=5, request_id=first.request_id)
        assert (await again.result()).text == first.answer.text


async def test_a_refusal_has_its_code_and_its_field(gateway: GatewayProcess) -> None:
    async with AsyncParley(gateway.url) as parley:
        with pytest.raises(RefusedError) as refused:
            await parley.ask()
        assert (refused.value.status, refused.value.code) == (400, "invalid_request")
        with pytest.raises(RefusedError) as unknown:
            await parley.follow("no-such-request").result()
        assert unknown.value.status == 404
    async with AsyncParley(gateway.url, patience_s=0.3) as impatient:
        with pytest.raises(RefusedError, match="PARLEY_EMBEDDER"):
            await impatient.search("without an embedder")


async def test_search_is_the_gateways(settings: Settings) -> None:
    async with AsyncParley.kafka(brokers(settings), user="nina", prefix=settings.topic_prefix) as parley:
        with pytest.raises(ParleyError, match="gateway"):
            await parley.search("anything")


async def test_nobody_there_is_told_after_the_clients_patience() -> None:
    port = free_port()
    async with AsyncParley(f"http://127.0.0.1:{port}", patience_s=0.3) as parley:
        with pytest.raises(UnreachableError):
            await parley.ask("hello")
    with pytest.raises(UnreachableError):
        async with AsyncParley.kafka(f"127.0.0.1:{port}", user="nina"):
            pass


async def test_a_stream_without_keep_alives_goes_on_over_another_connection(
    gateway: GatewayProcess, workers: Workers
) -> None:
    async with (
        asyncio.timeout(120),
        Proxy(gateway.settings.gateway_port) as proxy,
        AsyncParley(f"http://127.0.0.1:{proxy.port}", user="nina", silent_s=0.5) as parley,
    ):
        following, hanging, goes_on = await parley.ask("hello", max_tokens=100_000), None, once_at(1)
        async for update in following:
            if hanging is None and update.answer.position >= 5:
                hanging = asyncio.create_task(hang_until_reconnected(proxy))
            if hanging is not None and hanging.done() and goes_on(update):
                await parley.cancel(following.request_id)
    assert following.answer.text == await kept(gateway, following.request_id)
    assert following.answer.end is not None
    assert following.answer.end["finish_reason"] == "cancelled"


async def test_an_answer_of_which_the_turn_alone_is_left_is_shown_whole(
    gateway: GatewayProcess, moved: GatewayProcess, workers: Workers
) -> None:
    async with (
        asyncio.timeout(120),
        Proxy(gateway.settings.gateway_port) as proxy,
        AsyncParley(f"http://127.0.0.1:{proxy.port}", user="nina") as parley,
    ):
        following, cuts, is_there = await parley.ask("hello", max_tokens=100_000), [], once_at(5)
        async for update in following:
            cuts.append(update.cut)
            if is_there(update):
                await move(proxy, moved, following.request_id)
        assert (following.answer.text, cuts[-1]) == (MOVED, 0)
        with pytest.raises(RefusedError, match="no request with this id"):
            await parley.follow("another", after=7).result()
    async with AsyncParley(gateway.url, user="nina") as before:
        await before.cancel(following.request_id)


@pytest.mark.parametrize("way", WAYS)
def test_without_an_event_loop_it_is_the_same(
    way: str, gateway: GatewayProcess, settings: Settings, workers: Workers
) -> None:
    made = (
        Parley(gateway.url, user="omar")
        if way == "http"
        else Parley.kafka(brokers(settings), user="omar", prefix=settings.topic_prefix)
    )
    with made as parley:
        asked = parley.ask("hello", max_tokens=6)
        assert "".join(update.text for update in asked) == asked.answer.text
        again = parley.follow(asked.request_id)
        assert again.result().text == asked.answer.text
        endless = parley.ask("endless", max_tokens=100_000)
        for update in endless:
            if update.answer.position >= 3:
                break
        parley.cancel(endless.request_id)
        other = parley.regenerate(asked.request_id, max_tokens=2)
        assert other.result().end is not None
        assert other.answer.conversation_id.startswith("default~")
        if way == "http":
            assert [one["request_id"] for one in parley.versions(asked.request_id)] == [
                asked.request_id,
                other.request_id,
            ]
        assert parley.edit(asked.request_id, "uno", max_tokens=2).result().tokens
        assert parley.fork(asked.request_id, "two", max_tokens=2).result().tokens
        assert parley.follow(endless.request_id).result().end["finish_reason"] == "cancelled"
    assert not [thread for thread in threading.enumerate() if thread.name == "parley-client"]


async def test_a_worker_and_the_gateway_die_and_the_answer_is_whole(
    gateway: GatewayProcess, settings: Settings, workers: Workers
) -> None:
    async with client("http", gateway, settings) as http, client("kafka", gateway, settings) as kafka:
        over_http = await http.ask("by http", max_tokens=200)
        over_kafka = await kafka.ask("by kafka", max_tokens=200)
        begun = asyncio.Event()

        async def read(following: object) -> str:
            text = ""
            async for update in following:  # type: ignore[attr-defined]
                assert update.gap == 0
                text = text + update.text if update.cut is None else update.answer.text
                if update.answer.position > 20:
                    begun.set()
            return text

        reading = asyncio.gather(read(over_http), read(over_kafka))
        await begun.wait()
        await asyncio.to_thread(workers.kill)
        gateway.kill()
        await asyncio.to_thread(gateway.start)
        texts = await reading
    for text, following in zip(texts, (over_http, over_kafka), strict=True):
        assert text == following.answer.text == await kept(gateway, following.request_id)
        assert len(following.answer.tokens) == 200
