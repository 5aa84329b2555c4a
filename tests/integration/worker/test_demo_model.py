"""The whole way, with the demo model, real embeddings and a real Milvus."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from app.local.milvus import MilvusNode
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.search.query import TurnSearch
from app.search.vector_store import Query
from models.embedder import load_embedder
from tests.faults.verdict import judge
from tests.faults.worker_process import WorkerProcess
from tests.integration.worker.client import Client
from tests.integration.worker.conftest import StartWorker

USERS = 20
QUESTIONS = ("Hi, my name is Nina.", "Where is my order 48213?", "What was my order number?")


@pytest.fixture(scope="module")
def worker(start_worker: StartWorker, milvus: MilvusNode) -> WorkerProcess:
    return start_worker(engine="torch", embedder="minilm", milvus_uri=milvus.uri, milvus_collection="demo_model")


@pytest.fixture
async def connection(milvus: MilvusNode) -> AsyncIterator[Milvus]:
    connection = Milvus(milvus.uri)
    yield connection
    await connection.close()


async def test_sixty_requests_of_twenty_users_are_answered_in_order_remembered_and_indexed(
    client: Client, connection: Milvus
) -> None:
    users = [client.user() for _ in range(USERS)]
    ids = {user: [] for user in users}
    for question in QUESTIONS:
        for user in users:
            ids[user].append(await client.ask(user, question, temperature=0, max_tokens=60))
    answers = {user: [await client.answer(user, request_id) for request_id in ids[user]] for user in users}

    for user in users:
        assert "48213" in answers[user][1].text
        assert "48213" in answers[user][2].text, "the number of an earlier turn"
        assert [turn.request_id for turn in await client.turns_of(user, 3)] == ids[user]
    verdict = await judge(client.settings, paced=False)
    assert (verdict.turns, verdict.faults) == (len(users) * 3, {})

    async with asyncio.timeout(120):
        while len(rows := await indexed(client, connection)) < 2 * 3 * USERS:
            await asyncio.sleep(0.5)
    assert len(set(rows)) == len(rows) == 2 * 3 * USERS


async def indexed(client: Client, connection: Milvus) -> list[str]:
    rows = await connection.call("query", client.settings.milvus_collection, filter='turn_id != ""', limit=10_000)
    return [row["turn_id"] for row in rows]


async def test_the_history_is_found_by_a_paraphrase(client: Client, connection: Milvus) -> None:
    user = client.user()
    await client.asked(user, "My kettle is broken.", temperature=0, max_tokens=40)
    await client.asked(user, "What are your opening hours?", temperature=0, max_tokens=40)
    embedder = await asyncio.to_thread(load_embedder, "minilm")
    try:
        search = TurnSearch(MilvusStore(connection, client.settings.milvus_collection), embedder)
        async with asyncio.timeout(120):
            while len(hits := await search.search(Query(user_id=user, text="an appliance stopped working"))) < 4:
                await asyncio.sleep(0.5)
    finally:
        embedder.close()
    assert "kettle" in hits[0].text


async def test_answer_has_the_shape_that_its_request_asks_for(client: Client) -> None:
    user = client.user()
    order = {"type": "object", "properties": {"order": {"type": "string", "pattern": "^[0-9]{4}$"}}}
    order |= {"required": ["order"], "additionalProperties": False}
    schema = {"type": "json_schema", "json_schema": {"name": "order", "schema": order}}
    answer = await client.asked(user, "Where is my order 4711?", temperature=0, response_format=schema)
    assert answer.end is not None
    assert answer.end.finish_reason == "stop"
    assert set(json.loads(answer.text)) == {"order"}
    choices = {"type": "choices", "choices": ["yes", "no"]}
    assert (await client.asked(user, "Has it come?", response_format=choices)).text in {"yes", "no"}


async def test_shape_that_cannot_be_kept_to_is_a_bad_request(client: Client) -> None:
    bad = {"type": "json_schema", "json_schema": {"schema": {"type": "array", "not": {}}}}
    answer = await client.asked(client.user(), "hello", response_format=bad)
    assert answer.end is not None
    assert answer.end.error is not None
    assert answer.end.error.code == "invalid_request"
    assert "not" in answer.end.error.message


async def test_logprobs_are_told_with_their_tokens_where_asked(client: Client) -> None:
    user = client.user()
    answer = await client.asked(
        user, "Where is my order 1234?", temperature=0, max_tokens=4, logprobs=True, top_logprobs=2
    )
    reported = [logprob for segment in answer.segments for logprob in segment.logprobs or ()]
    assert [logprob.token for logprob in reported] == list(answer.tokens)
    assert all(logprob.logprob <= 0 and len(logprob.top) == 2 for logprob in reported)
    assert all(logprob.top[0].token == logprob.token for logprob in reported), "greedy takes the likeliest"
