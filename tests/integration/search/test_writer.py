from __future__ import annotations

import asyncio

import pytest
from pymilvus import AsyncMilvusClient, DataType

from app.local.milvus import MilvusNode
from app.search.identity import EmbedderMark
from app.search.milvus.collection import open_collection
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.search.query import TurnSearch
from app.search.vector_store import IndexMismatchError, Query
from tests.integration.search.history import NOW, Bench, Hashed, rows_of, turn

NAMES = [
    'a"b',
    "a\\b",
    "a'b",
    "😀",
    "a\nb",
    "a\tb",
    "%x_",
    "{x}",
    'a\\"b\\',
    "\\u0041",
    "\x07\x7f",
    "a/b:user",
    "ü" * 128,
]


class Wide(Hashed):
    name = "wide"
    dimension = 16


async def test_turn_becomes_two_rows_and_an_empty_answer_none(connection: Milvus, collection: str) -> None:
    async with Bench(MilvusStore(connection, collection)) as bench:
        bench.submit(turn("ann", "r1", "where is it", "on its way"), turn("ann", "r2", "stop", ""))
        await bench.settled(2)
        rows = await rows_of(connection, collection)
    assert {key: (row["text"], row["role"]) for key, row in rows.items()} == {
        "ann/r1:user": ("where is it", "user"),
        "ann/r1:assistant": ("on its way", "assistant"),
        "ann/r2:user": ("stop", "user"),
    }
    assert bench.done == ["r1", "r2"]


async def test_same_turn_again_changes_its_rows_and_adds_none(connection: Milvus, collection: str) -> None:
    async with Bench(MilvusStore(connection, collection)) as bench:
        bench.submit(turn("ann", "r1", answer="old"), turn("ann", "r1", answer="newer"))
        await bench.settled(2)
        bench.submit(turn("ann", "r1", answer="newest"))
        await bench.settled(3)
        rows = await rows_of(connection, collection)
    assert {key: row["text"] for key, row in rows.items()} == {"ann/r1:user": "hello", "ann/r1:assistant": "newest"}


async def test_text_over_the_fields_limit_is_cut_and_not_lost(connection: Milvus, collection: str) -> None:
    async with Bench(MilvusStore(connection, collection)) as bench:
        bench.submit(turn("ann", "r1", prompt="é" * 65536, answer="x" * 65535))
        await bench.settled(1)
        rows = await rows_of(connection, collection)
    assert rows["ann/r1:user"]["text"] == "é" * 32767
    assert rows["ann/r1:assistant"]["text"] == "x" * 65535
    assert bench.rejected == {}


async def test_bad_row_is_rejected_and_its_neighbours_are_written(connection: Milvus, collection: str) -> None:
    async with Bench(MilvusStore(connection, collection)) as bench:
        bench.submit(*(turn("ann", f"r{n}") for n in range(20)))
        bench.submit(turn("ann", "bad", model_version="v" * 2000))
        bench.submit(turn("ann", "zero", prompt="no vector"), turn("ann", "nan", answer="not a number"))
        bench.submit(*(turn("ann", f"r{n}") for n in range(20, 40)))
        await bench.settled(43)
        rows = await rows_of(connection, collection)
    assert set(bench.rejected) == {"bad", "zero", "nan"}
    assert "model_version" in bench.rejected["bad"]
    assert {f"ann/r{n}:{role}" for n in range(40) for role in ("user", "assistant")} <= set(rows)
    assert len(rows) == 82
    assert bench.writer.stats().rejected == 3


async def test_erasure_takes_what_came_before_it_and_leaves_the_rest(connection: Milvus, collection: str) -> None:
    async with Bench(MilvusStore(connection, collection)) as bench:
        bench.submit(turn("ann", "old"), turn("bob", "old"), turn("ann", "at", created_at=NOW + 10))
        bench.erase("ann", NOW + 10)
        bench.submit(turn("ann", "later", created_at=NOW + 11))
        await bench.settled(5)
        rows = await rows_of(connection, collection)
    assert bench.done == ["erase ann", "old", "old", "at", "later"], "an erasure is next, whatever waits"
    assert {key.partition(":")[0] for key in rows} == {"bob/old", "ann/later"}


@pytest.mark.parametrize("user", NAMES)
async def test_erasure_of_any_name_meets_that_user_alone(connection: Milvus, collection: str, user: str) -> None:
    others = ["x", user + "x", user[:-1] + "y"]
    async with Bench(MilvusStore(connection, collection)) as bench:
        bench.submit(*(turn(name, "r") for name in (user, *others)))
        bench.erase(user, NOW)
        await bench.settled(5)
        rows = await rows_of(connection, collection)
    assert {row["user_id"] for row in rows.values()} == set(others)


@pytest.mark.parametrize("name", NAMES)
async def test_erasure_of_a_conversation_of_any_name_meets_it_alone(
    connection: Milvus, collection: str, name: str
) -> None:
    others = ["x", name + "x", name[:-1] + "y"]
    async with Bench(MilvusStore(connection, collection)) as bench:
        for number, conversation in enumerate((name, *others)):
            bench.submit(turn("ann", f"r{number}", conversation_id=conversation))
        bench.submit(
            turn("bob", "r", conversation_id=name), turn("ann", "later", created_at=NOW + 1, conversation_id=name)
        )
        bench.erase("ann", NOW, name)
        await bench.settled(7)
        rows = await rows_of(connection, collection)
        query = Query(user_id="ann", text="hello", limit=50, erased={"x": NOW, name: NOW})
        hits = await TurnSearch(MilvusStore(connection, collection), Hashed()).search(query)
    assert {key.rpartition(":")[0] for key in rows} == {"ann/r1", "ann/r2", "ann/r3", "bob/r", "ann/later"}
    assert {hit.request_id for hit in hits} == {"r2", "r3", "later"}, "what is being erased is not found"


async def test_several_workers_create_one_collection_and_write_at_once(milvus: MilvusNode, collection: str) -> None:
    benches = [Bench(MilvusStore(Milvus(milvus.uri), collection)) for _ in range(4)]
    for number, bench in enumerate(benches):
        bench.submit(*(turn(f"user{number}", f"r{n}") for n in range(50)))
        bench.writer.start()
    await asyncio.gather(*(bench.settled(50) for bench in benches))
    rows = await rows_of(Milvus(milvus.uri), collection)
    await asyncio.gather(*(bench.writer.stop(0) for bench in benches))
    assert len(rows) == 400


async def test_collection_of_another_dimension_ends_the_writer_with_one_line(
    connection: Milvus, collection: str
) -> None:
    await open_collection(connection, collection, await EmbedderMark.of(Wide()), 16)
    async with Bench(MilvusStore(connection, collection)) as bench:
        with pytest.raises(AssertionError, match="16 dimensions, the embedder makes 8"):
            await bench.settled(1)
    assert isinstance(bench.fatal[0], IndexMismatchError)
    assert "\n" not in str(bench.fatal[0])


async def test_foreign_collection_is_refused(connection: Milvus, collection: str) -> None:
    schema = AsyncMilvusClient.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=8)
    await connection.call("create_collection", collection, schema=schema)
    with pytest.raises(IndexMismatchError, match="PARLEY_MILVUS_COLLECTION"):
        await open_collection(connection, collection, await EmbedderMark.of(Hashed()), 8)


async def test_collection_that_was_dropped_is_made_again_and_no_turn_is_lost(
    connection: Milvus, collection: str
) -> None:
    async with Bench(MilvusStore(connection, collection)) as bench:
        bench.submit(turn("ann", "r1"))
        await bench.settled(1)
        await connection.call("drop_collection", collection)
        bench.submit(turn("ann", "r2"))
        await bench.settled(2)
        assert set(await rows_of(connection, collection)) == {"ann/r2:user", "ann/r2:assistant"}


async def test_flush_comes_after_its_time(connection: Milvus, collection: str) -> None:
    async with Bench(MilvusStore(connection, collection), flush_s=0.2) as bench:
        bench.submit(turn("ann", "r1"))
        await bench.settled(1)
        async with asyncio.timeout(120):
            while not bench.writer.stats().flushes:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        assert bench.writer.stats().flushes == 1, "nothing new was there to flush"


async def test_revoked_partition_is_forgotten(connection: Milvus, collection: str) -> None:
    async with Bench(MilvusStore(connection, collection), delay_s=30) as bench:
        bench.submit(turn("ann", "mine"), partition=1)
        bench.submit(turn("bob", "theirs"), partition=2)
        bench.writer.revoke({2})
        assert bench.writer.backlog == 1
        await bench.writer.stop(120)
        assert bench.done == ["mine"]


async def test_stop_writes_what_waits(connection: Milvus, collection: str) -> None:
    async with Bench(MilvusStore(connection, collection), delay_s=600) as bench:
        bench.submit(*(turn("ann", f"r{n}") for n in range(10)))
        async with asyncio.timeout(240):
            await bench.writer.stop(120)
        assert len(bench.done) == 10
        assert len(await rows_of(connection, collection)) == 20
