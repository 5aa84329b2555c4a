"""The response cache on a real worker: who gets a repeated answer, what is recorded of it, and what a crash changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.reader.answer import Answer
from app.wire.codec import decode
from app.wire.event import CACHED, PLAN, Notice, TokenEvent
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

POLICY = """
[cache]
ttl_s = 60
scope = "tenant"
[tenants.a]
[tenants.b]
"""
GREEDY = {"temperature": 0, "max_tokens": 8}


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, tmp_path_factory: pytest.TempPathFactory) -> WorkerProcess:
    path: Path = tmp_path_factory.mktemp("policy") / "policy.toml"
    path.write_text(POLICY)
    return start_worker(policy=path)


async def notices(client: Client, answer: Answer) -> dict[str, Notice]:
    events = [decode(TokenEvent, record.value, record.headers) for record in await client.records("tokens")]
    found = [event.notice for event in events if event.request_id == answer.request_id and event.notice is not None]
    return {notice.code: notice for notice in found}


async def test_an_equal_request_is_answered_with_the_same_tokens_and_its_turn_names_the_source(client: Client) -> None:
    user = client.user()
    first = await client.asked(user, "the same", conversation_id="a", **GREEDY)
    again = await client.asked(user, "the same", conversation_id="b", **GREEDY)
    other = await client.asked(user, "another", conversation_id="c", **GREEDY)
    past = await client.asked(user, "the same", conversation_id="d", cache=False, **GREEDY)
    assert (again.tokens, again.text) == (first.tokens, first.text)
    assert past.text == first.text != other.text
    found = await notices(client, again)
    assert found[PLAN].details == {"cached": first.request_id}
    assert found[CACHED].details == {"request_id": first.request_id}
    assert (again.end.usage.prompt_tokens, again.end.usage.cached_tokens) == (first.end.usage.prompt_tokens,) * 2
    turns = await client.turns_of(user, 4)
    assert [turn.cached for turn in turns] == [None, first.request_id, None, None]
    assert [turn.answer for turn in turns[:2]] == [first.text] * 2
    assert await notices(client, past) == await notices(client, other) == {}


async def test_a_follower_is_the_same_after_its_worker_is_killed(worker: WorkerProcess, client: Client) -> None:
    user = client.user()
    long = {"temperature": 0, "max_tokens": 300}
    first = await client.ask(user, "killed", conversation_id="a", **long)
    await client.begun(user, first)
    follower = await client.ask(user, "killed", conversation_id="b", **long)
    await client.begun(user, follower, 20)
    worker.kill()
    worker.start()
    whole, followed = await client.answer(user, first), await client.answer(user, follower)
    assert followed.complete
    assert followed.tokens == whole.tokens
    turns = {turn.request_id: turn for turn in await client.turns_of(user, 2)}
    # What the next owner generates of it is charged: no recording has outlived the worker.
    assert (turns[follower].cached, turns[first].cached) == (None, None)


async def test_tenants_are_kept_apart_and_an_erasure_empties_the_cache(client: Client) -> None:
    first = await client.asked(client.user(), "private", tenant="a", **GREEDY)
    erased = client.user()
    source = await client.asked(erased, "mine", tenant="a", **GREEDY)
    shared = await client.asked(client.user(), "private", tenant="a", **GREEDY)
    assert (await notices(client, shared))[CACHED].details == {"request_id": first.request_id}
    for tenant in ("b", None):
        apart = await client.asked(client.user(), "private", tenant=tenant, **GREEDY)
        assert await notices(client, apart) == {}
    await client.send("controls", {"type": "erase", "user_id": erased}, erased)
    async with asyncio.timeout(30):
        while True:
            after = await client.asked(client.user(), "mine", tenant="a", **GREEDY)
            if CACHED not in (found := await notices(client, after)):
                break
            assert found[CACHED].details == {"request_id": source.request_id}, "other users were answered since"
            await asyncio.sleep(0.2)
    assert after.text == source.text
