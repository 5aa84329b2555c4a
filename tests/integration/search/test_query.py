from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.local.milvus import MilvusNode
from app.local.ports import free_port
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.search.query import TurnSearch
from app.search.rows import TurnSide
from app.search.vector_store import Hit, IndexAwayError, IndexMismatchError, Query
from models.embedder import Embedder
from tests.integration.search.history import NOW, Bench, Hashed, turn
from tests.integration.search.test_writer import NAMES

TALK = [
    ("My package never arrived", "I am sorry to hear that. Order 4711 is delayed."),
    ("Can I pay with PayPal?", "Yes, we take PayPal and credit cards."),
    ("How do I reset my password?", "Use the link on the login page."),
    ("Do you sell blue bicycles?", "We have two models in blue."),
]


@pytest.fixture
async def search(connection: Milvus, collection: str, embedder: Embedder) -> AsyncIterator[TurnSearch]:
    """Ann's talk, an hour between turns, the last one in a conversation of its own; and Bob's, with her first words."""
    async with Bench(MilvusStore(connection, collection), embedder) as bench:
        for number, (prompt, answer) in enumerate(TALK):
            conversation = "default" if number < 3 else "shop"
            at = NOW + number * 3_600_000
            bench.submit(turn("ann", f"r{number}", prompt, answer, created_at=at, conversation_id=conversation))
        bench.submit(turn("bob", "b1", *TALK[0]))
        await bench.settled(5)
        yield TurnSearch(MilvusStore(connection, collection), embedder)


async def test_paraphrase_is_found(search: TurnSearch) -> None:
    hits = await search.search(Query(user_id="ann", text="the parcel was not delivered", full_text=False))
    assert (hits[0].request_id, hits[0].role, hits[0].text) == ("r0", TurnSide.USER, TALK[0][0])
    assert hits[0].similarity > 0.5
    assert len(hits) == 8
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_rare_word_is_found_by_its_letters(search: TurnSearch) -> None:
    hits = await search.search(Query(user_id="ann", text="4711", limit=1))
    assert (hits[0].request_id, hits[0].role) == ("r0", TurnSide.ASSISTANT)


async def test_words_that_say_nothing_do_not_lift_a_row(
    connection: Milvus, collection: str, embedder: Embedder
) -> None:
    async with Bench(MilvusStore(connection, collection), embedder) as bench:
        bench.submit(turn("cleo", "c1", "I have noted that it is not so", "That has not been a question."))
        bench.submit(turn("cleo", "c2", "How long does delivery take?", "Delivery takes 2 to 3 days."))
        await bench.settled(2)
        search = TurnSearch(MilvusStore(connection, collection), embedder)
        both = await search.search(Query(user_id="cleo", text="a parcel that has not come"))
        by_meaning = await search.search(Query(user_id="cleo", text="a parcel that has not come", full_text=False))
        assert [hit.text for hit in both] == [hit.text for hit in by_meaning]
        assert len(await search.search(Query(user_id="cleo", text="what is it"))) == 4


async def test_hits_are_of_that_user_alone(search: TurnSearch) -> None:
    assert {hit.user_id for hit in await search.search(Query(user_id="bob", text="package", limit=50))} == {"bob"}
    assert await search.search(Query(user_id='bob" or user_id != "', text="package")) == []


async def test_conversation_role_and_time_narrow_the_hits(search: TurnSearch) -> None:
    async def requests(**narrow: object) -> set[str]:
        query = Query(user_id="ann", text="help", limit=50, **narrow)  # type: ignore[arg-type]
        return {f"{hit.request_id}:{hit.role}" for hit in await search.search(query)}

    assert await requests(conversation_id="shop") == {"r3:user", "r3:assistant"}
    assert await requests(role=TurnSide.USER) == {"r0:user", "r1:user", "r2:user", "r3:user"}
    assert await requests(since=NOW + 1, until=NOW + 7_200_000) == {"r1:user", "r1:assistant"}


@pytest.mark.parametrize("user", NAMES)
async def test_user_of_any_name_finds_own_words_only(connection: Milvus, collection: str, user: str) -> None:
    async with Bench(MilvusStore(connection, collection)) as bench:
        bench.submit(*(turn(name, "r1", conversation_id=name) for name in (user, user + "x", "x", user[:-1] + "y")))
        await bench.settled(4)
        hits = await TurnSearch(MilvusStore(connection, collection), Hashed()).search(
            Query(user_id=user, conversation_id=user, text="hello")
        )
    assert [(hit.user_id, hit.request_id) for hit in hits] == [(user, "r1")] * 2


async def test_no_history_yet_is_no_hits_and_no_error(connection: Milvus, collection: str, embedder: Embedder) -> None:
    search = TurnSearch(MilvusStore(connection, collection), embedder)
    assert await search.search(Query(user_id="ann", text="hello")) == []


async def once_reached(ask: Callable[[], Awaitable[list[Hit]]]) -> list[Hit]:
    """GRPC does not connect at once to a port that has just refused it."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await ask()
            except IndexAwayError:
                await asyncio.sleep(0.2)


async def test_search_works_after_a_restart_that_no_writer_has_seen(
    start_milvus: Callable[[], MilvusNode], collection: str
) -> None:
    node = start_milvus()
    async with Bench(MilvusStore(Milvus(node.uri), collection)) as bench:
        bench.submit(turn("ann", "r1"))
        await bench.settled(1)
    search = TurnSearch(MilvusStore(Milvus(node.uri), collection), Hashed())
    query = Query(user_id="ann", text="hello")
    assert len(await search.search(query)) == 2
    node.kill()
    with pytest.raises(IndexAwayError):
        await search.search(query)
    node.start()
    hits = await once_reached(lambda: search.search(query))
    assert [hit.request_id for hit in hits] == ["r1", "r1"]


async def test_embedder_of_another_dimension_is_one_clear_line(
    search: TurnSearch, connection: Milvus, collection: str
) -> None:
    with pytest.raises(IndexMismatchError, match="384 dimensions, the embedder makes 8"):
        await TurnSearch(MilvusStore(connection, collection), Hashed()).search(Query(user_id="ann", text="x"))


async def test_server_that_is_not_there_is_one_clear_line(collection: str) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(IndexAwayError, match=uri) as caught:
        await TurnSearch(MilvusStore(Milvus(uri), collection), Hashed()).search(Query(user_id="ann", text="x"))
    assert "\n" not in str(caught.value)
