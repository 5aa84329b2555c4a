"""What an edit or another answer has replaced is not found, in Milvus and in a store of another package."""

from __future__ import annotations

from typing import Any, cast

import pytest
from parley_client.plugins import Plugin

from app.search.milvus import collection as milvus_collection
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.search.plugged_store import PluggedStore
from app.search.query import TurnSearch
from app.search.vector_store import Hit, Query, VectorStore, Version
from app.settings import Settings
from app.wire.turn import Turn
from deploy.examples.plugins.sqlite_store import SqliteStore
from models.interface.generation import FinishReason
from tests.integration.search.history import NOW, Bench, Hashed, turn


def version(request: str, *replaces: str, conversation: str = "default", at: int = 1, **more: Any) -> Turn:
    """In its own words, so that all turns are equally near."""
    given = {"prompt": f"asked {request}", "answer": f"said {request}", **more}
    return turn("ann", request, created_at=NOW + at, conversation_id=conversation, replaces=replaces or None, **given)


TALK = [
    version("r1"),
    version("r2"),
    version("r3"),
    version("e2", "r2", "r3", conversation="default~1", at=2),  # the second question, edited
    version("a2", "e2", conversation="default~2", at=3),  # and answered again
]


@pytest.fixture(params=["milvus", "sqlite"])
def store(request: pytest.FixtureRequest, connection: Milvus, collection: str, tmp_path: Any) -> VectorStore:
    if request.param == "milvus":
        return MilvusStore(connection, collection)
    made = cast(Plugin, type("Made", (), {"made": staticmethod(SqliteStore), "name": "sqlite", "is_async": False})())
    return PluggedStore(made, Settings(_env_file=None, milvus_uri=str(tmp_path / "history.db")))


async def found(store: VectorStore, **narrow: Any) -> list[Hit]:
    return await TurnSearch(store, Hashed()).search(Query(user_id="ann", text="x", **{"limit": 50, **narrow}))


async def names(store: VectorStore, **narrow: Any) -> set[str]:
    hits = await found(store, **narrow)
    keys = [(hit.request_id, hit.role) for hit in hits]
    assert len(set(keys)) == len(keys), "a turn is found twice"
    return {hit.request_id for hit in hits}


@pytest.mark.parametrize("order", [TALK, TALK[::-1], [*TALK[2:], *TALK, *TALK[:3]]])
async def test_the_latest_version_is_found_in_whatever_order_and_however_often_turns_come(
    store: VectorStore, order: list[Turn]
) -> None:
    async with Bench(store) as bench:
        bench.submit(*order)
        bench.submit(turn("bob", "b1", replaces=("r1",)))
        await bench.settled(len(order) + 1)
        assert await names(store) == {"r1", "a2"}
        assert await names(store, limit=1) <= {"r1", "a2"}
        assert await names(store, conversation_id="default") == {"r1"}
        hits = await found(store, include_replaced=True)
        versions = {hit.request_id: hit.replaced_by for hit in hits}
        edited = Version(request_id="e2", conversation_id="default~1")
        again = Version(request_id="a2", conversation_id="default~2")
        assert versions == {"r1": None, "r2": edited, "r3": edited, "e2": again, "a2": None}


async def test_with_an_erasure_of_the_version_its_source_is_found_again(store: VectorStore) -> None:
    async with Bench(store) as bench:
        bench.submit(*TALK)
        await bench.settled(5)
        erased = {"default~2": NOW + 3}
        assert await names(store, erased=erased) == {"r1", "e2"}, "the erasure has not reached the rows yet"
        bench.erase("ann", NOW + 9, "default~2")
        await bench.settled(6)
        assert await names(store) == {"r1", "e2"}
        bench.erase("ann", NOW + 9, "default~1")
        await bench.settled(7)
        assert await names(store) == {"r1", "r2", "r3"}


@pytest.mark.parametrize(
    "nothing",
    [
        {"answer": ""},  # cancelled before its first token
        {"prompt": "", "answer": ""},  # rolled back, or not stored
        {"answer": "", "finish_reason": FinishReason.FILTERED},
    ],
)
async def test_a_version_without_an_answer_replaces_nothing(
    connection: Milvus, collection: str, nothing: dict[str, Any]
) -> None:
    store = MilvusStore(connection, collection)
    made = version("e2", "r2", conversation="default~1", **{k: v for k, v in nothing.items() if k != "finish_reason"})
    async with Bench(store) as bench:
        bench.submit(TALK[1], made)
        await bench.settled(2)
        assert await names(store, conversation_id="default") == {"r2"}


async def test_among_many_replaced_ones_others_are_found(connection: Milvus, collection: str) -> None:
    store = MilvusStore(connection, collection)
    tries = [version(f"t{at}", *([f"t{at - 1}"] if at else []), conversation=f"c{at}", at=at) for at in range(60)]
    async with Bench(store) as bench:
        bench.submit(*tries, version("r1"))
        await bench.settled(61)
        assert await names(store, limit=4) == {"t59", "r1"}


async def test_a_collection_of_the_version_before_finds_all_versions(
    connection: Milvus, collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = milvus_collection._schema

    def former(dimension: int, *, full_text: bool) -> Any:
        schema = whole(dimension, full_text=full_text)
        schema._fields = [one for one in schema.fields if one.name != "replaces"]
        return schema

    monkeypatch.setattr(milvus_collection, "_schema", former)
    store = MilvusStore(connection, collection)
    async with Bench(store) as bench:
        bench.submit(*TALK)
        await bench.settled(5)
        assert await names(store) == {"r1", "r2", "r3", "e2", "a2"}
