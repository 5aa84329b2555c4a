"""What the two users say, what the answers must contain, and what a search must find afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.search.opening import open_vectors
from app.search.query import TurnSearch
from app.search.vector_store import Hit, Query, SearchError
from app.settings import Settings
from models.embedder import EmbedderError, load_embedder

ROWS_TIMEOUT_S = 90.0
ROWS_A_TURN = 2


class DemoError(Exception):
    """A step of the demo failed; one line for people."""


@dataclass(frozen=True, slots=True)
class Line:
    prompt: str
    expected: str | None = None  # the answer must contain it: an earlier turn mentioned it


@dataclass(frozen=True, slots=True)
class Speaker:
    user_id: str
    colour: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class DemoSearch:
    """A search for what was written, in other words than were used."""

    user_id: str
    query: str
    line: int  # the user's line that it must find


SPEAKERS = (
    Speaker(
        "nina",
        "cyan",
        (
            Line("Hi, I am Nina and my order number is 48213."),
            Line("How long does delivery take?"),
            Line("What was my order number?", expected="48213"),
        ),
    ),
    Speaker(
        "omar",
        "magenta",
        (
            Line("Hello, my name is Omar."),
            Line("How can I return an item?"),
            Line("Do you remember my name?", expected="Omar"),
        ),
    ),
)
SEARCH = DemoSearch("omar", "giving back something I bought", line=1)


async def best_hit(settings: Settings, asked: Mapping[str, Sequence[str]], conversation_id: str) -> Hit:
    """What `SEARCH` finds once the index has all rows; raises `DemoError` if it is the wrong turn. `asked`: the request
    ids of each user's lines.
    """
    # Only this conversation: a user of an earlier demo may have written the same.
    query = Query(user_id=SEARCH.user_id, text=SEARCH.query, conversation_id=conversation_id, limit=3)
    vectors = open_vectors(settings)
    try:
        embedder = await asyncio.to_thread(load_embedder, settings.embedder)
        try:
            search = TurnSearch(vectors, embedder)
            for user_id, request_ids in asked.items():
                await _wait_for_rows(search, user_id, conversation_id, ROWS_A_TURN * len(request_ids))
            hits = await search.search(query)
        finally:
            await asyncio.to_thread(embedder.close)
    except (SearchError, EmbedderError) as error:
        raise DemoError(str(error)) from error
    finally:
        await vectors.close()
    if not hits or hits[0].request_id != asked[SEARCH.user_id][SEARCH.line]:
        text = repr(hits[0].text) if hits else "nothing"
        raise DemoError(f"the search for {SEARCH.query!r} found {text}")
    return hits[0]


async def _wait_for_rows(search: TurnSearch, user_id: str, conversation_id: str, expected: int) -> None:
    everything = Query(
        user_id=user_id, text="anything", conversation_id=conversation_id, limit=expected + 1, full_text=False
    )
    deadline = time.monotonic() + ROWS_TIMEOUT_S
    rows = 0
    while time.monotonic() < deadline:
        rows = len(await search.search(everything))
        if rows == expected:
            return
        await asyncio.sleep(0.2)
    raise DemoError(f"Milvus has {rows} rows of {user_id}'s chat after {ROWS_TIMEOUT_S:.0f} s, not {expected}")
