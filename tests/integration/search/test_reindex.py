"""`parley search reindex`: another embedder, a new collection, the same name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from app.delivery.commits.changelog import changelog_topic, create_changelogs
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.search.query import TurnSearch
from app.search.reindex import Reindex
from app.search.vector_store import IndexMismatchError, Query
from app.settings import Settings
from app.wire.codec import encode
from app.wire.turn import Timing, Turn
from models.embedder.embedder import Embeds
from tables import records
from tables.erasures import Scope
from tables.records import Erased, Table
from tests.conftest import NewSettings
from tests.integration.search.history import NOW, Bench, Hashed, turn


class Other(Hashed):
    """Of the same dimension, and from another model."""

    name = "other"

    async def embed(self, texts: Any, *, query: bool = False) -> Any:
        return (await super().embed(texts, query=query))[:, ::-1].copy()


@pytest.fixture
async def indexed(new_settings: NewSettings, milvus: Any) -> Settings:
    settings = await new_settings(milvus_uri=milvus.uri, index_ttl_s=0)
    await create_changelogs(settings)
    return settings


async def write(settings: Settings, *turns: Turn, erased: dict[Scope, int] | None = None) -> None:
    producer = AIOKafkaProducer(**settings.cluster.options())
    await producer.start()
    try:
        for one in turns:
            await producer.send_and_wait(settings.topic("turns"), encode(one)[0], key=one.user_id.encode())
        for scope, at in (erased or {}).items():
            mark = records.encode(Erased(at, indexed=at))
            await producer.send_and_wait(changelog_topic(settings, Table.ERASED), mark, key=scope.key)
    finally:
        await producer.stop()


def reindex(
    settings: Settings, connection: Milvus, embedder: Embeds, report: Callable[[str], None] = lambda _line: None
) -> Reindex:
    return Reindex(settings, MilvusStore(connection, settings.milvus_collection), embedder, report)


async def keys(milvus: Milvus, name: str) -> set[str]:
    found = await milvus.call("query", name, filter='turn_id != ""', limit=1000, output_fields=["turn_id"])
    return {row["turn_id"].rpartition(":")[0] for row in found}


def some_turns(*ids: str, user: str = "ann") -> list[Turn]:
    return [turn(user, one, timing=Timing(requested_at=NOW)) for one in ids]


async def test_another_embedder_is_refused_until_the_collection_is_filled_again(
    indexed: Settings, connection: Milvus
) -> None:
    name = indexed.milvus_collection
    turns = some_turns("r1", "r2")
    async with Bench(MilvusStore(connection, name)) as bench:
        bench.submit(*turns)
        await bench.settled(2)
    with pytest.raises(IndexMismatchError, match=r"'other' is another one.*parley search reindex"):
        await TurnSearch(MilvusStore(connection, name), Other()).search(Query(user_id="ann", text="hello"))
    erased = {Scope("bob"): NOW + 1, Scope("ann", "left"): NOW}
    left = turn("ann", "left", conversation_id="left", timing=Timing(requested_at=NOW))
    begun_anew = turn("ann", "r3", conversation_id="left", timing=Timing(requested_at=NOW + 1), created_at=NOW + 2)
    await write(indexed, *turns, left, begun_anew, *some_turns("b", user="bob"), erased=erased)
    reported: list[str] = []
    done = await reindex(indexed, connection, Other(), reported.append).run()
    assert (done.turns, done.rows, done.left_out) == (3, 6, 2)
    assert await keys(connection, name) == {"ann/r1", "ann/r2", "ann/r3"}
    hits = await TurnSearch(MilvusStore(connection, name), Other()).search(Query(user_id="ann", text="hello"))
    assert {hit.request_id for hit in hits} == {"r1", "r2", "r3"}
    collections = [one for one in await connection.call("list_collections") if one.startswith(name)]
    assert collections == [done.collection], "the former one would keep what is erased"


async def test_collection_is_filled_again_a_second_time_and_the_name_follows(
    indexed: Settings, connection: Milvus
) -> None:
    await write(indexed, *some_turns("r1"))
    first = await reindex(indexed, connection, Other()).run()
    await asyncio.sleep(1.1)  # collections are named by the second
    await write(indexed, *some_turns("r2"))
    second = await reindex(indexed, connection, Hashed()).run()
    assert first.collection != second.collection
    assert await keys(connection, indexed.milvus_collection) == {"ann/r1", "ann/r2"}
    assert not await connection.call("has_collection", first.collection)


async def test_writer_that_runs_meanwhile_loses_no_turn(indexed: Settings, connection: Milvus) -> None:
    name = indexed.milvus_collection
    turns = some_turns(*(f"r{n}" for n in range(40)))
    async with Bench(MilvusStore(connection, name)) as bench:
        bench.submit(*turns[:20])
        await bench.settled(20)
        await write(indexed, *turns)
        filling = asyncio.ensure_future(reindex(indexed, connection, Hashed()).run())
        for one in turns[20:]:
            bench.submit(one)
            await asyncio.sleep(0.02)
        await filling
        await bench.settled(40)
        assert await keys(connection, name) == {f"ann/r{n}" for n in range(40)}


async def test_filling_that_fails_leaves_the_collection_in_use_as_it_was(indexed: Settings, connection: Milvus) -> None:
    class Broken(Hashed):
        async def embed(self, texts: Any, *, query: bool = False) -> Any:
            if len(texts) > 1:
                raise RuntimeError("no more")
            return await super().embed(texts)

    async with Bench(MilvusStore(connection, indexed.milvus_collection)) as bench:
        bench.submit(*some_turns("r1"))
        await bench.settled(1)
    await write(indexed, *some_turns("r1", "r2"))
    with pytest.raises(RuntimeError):
        await reindex(indexed, connection, Broken()).run()
    assert await keys(connection, indexed.milvus_collection) == {"ann/r1"}
    assert len([c for c in await connection.call("list_collections") if c.startswith(indexed.milvus_collection)]) == 1


async def test_what_was_replaced_stays_replaced(indexed: Settings, connection: Milvus) -> None:
    name = indexed.milvus_collection
    edited = turn("ann", "e2", conversation_id="default~1", replaces=("r2",), timing=Timing(requested_at=NOW))
    await write(indexed, edited, *some_turns("r1", "r2"))
    await reindex(indexed, connection, Other()).run()
    assert await keys(connection, name) == {"ann/r1", "ann/r2", "ann/e2"}
    hits = await TurnSearch(MilvusStore(connection, name), Other()).search(Query(user_id="ann", text="hello"))
    assert {hit.request_id for hit in hits} == {"r1", "e2"}
