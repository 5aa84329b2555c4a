"""The index of the chat: wait until it has all rows, then find one of them by other words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from app.demo.script import DemoError, Recall
from app.demo.talk import Talk
from app.search.opening import open_vectors
from app.search.query import TurnSearch
from app.search.vector_store import Hit, Query, SearchError
from app.settings import Settings
from models.embedder import EmbedderError, load_embedder

ROWS_TIMEOUT_S = 90.0
ROWS_A_TURN = 2


async def recall(settings: Settings, talks: Sequence[Talk], wanted: Recall) -> Hit:
    """The best hit, once all rows are stored; raises `DemoError` if it is the wrong one."""
    talked = next(talk for talk in talks if talk.user_id == wanted.user_id)
    # Only this conversation: a user of an earlier demo may have written the same.
    query = Query(user_id=wanted.user_id, text=wanted.query, conversation_id=talked.conversation_id, limit=3)
    vectors = open_vectors(settings)
    try:
        embedder = await asyncio.to_thread(load_embedder, settings.embedder)
        try:
            search = TurnSearch(vectors, embedder)
            for talk in talks:
                await _rows(search, talk)
            hits = await search.search(query)
        finally:
            await asyncio.to_thread(embedder.close)
    except (SearchError, EmbedderError) as error:
        raise DemoError(str(error)) from error
    finally:
        await vectors.close()
    if not hits or hits[0].request_id != talked.request_ids[wanted.line]:
        text = repr(hits[0].text) if hits else "nothing"
        raise DemoError(f"the search for {wanted.query!r} found {text}")
    return hits[0]


async def _rows(search: TurnSearch, talk: Talk) -> None:
    """Wait until every turn of the chat has its rows."""
    expected = ROWS_A_TURN * len(talk.request_ids)
    everything = Query(
        user_id=talk.user_id, text="anything", conversation_id=talk.conversation_id, limit=expected + 1, full_text=False
    )
    deadline = time.monotonic() + ROWS_TIMEOUT_S
    rows = 0
    while time.monotonic() < deadline:
        rows = len(await search.search(everything))
        if rows == expected:
            return
        await asyncio.sleep(0.2)
    raise DemoError(f"Milvus has {rows} rows of {talk.user_id}'s chat after {ROWS_TIMEOUT_S:.0f} s, not {expected}")
