"""The verdict on what is found: turns in whose place no other one stands, and each side of a turn once.

What a version replaces is read from its request, whether it has an answer from `turns`; the search is the real one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.search.query import TurnSearch
from app.search.rows import request_id_of
from app.search.vector_store import Hit, Query
from app.wire.turn import Turn
from tests.faults.records import Key
from tests.simulation.broker import Entry
from tests.simulation.forks import asked_in
from tests.simulation.milvus import MilvusServer, SameVector, SimMilvus

_FEW, _ALL = 2, 100


class PromptMilvus(SimMilvus):
    """Answers at once, and always."""

    async def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **options: Any) -> Any:
        return self._effect(method, args, options)()


def wrong_versions(requests: Iterable[Entry], turns: Mapping[Key, Turn], server: MilvusServer) -> Iterator[str]:
    asked = {key: one for key, (_, one) in asked_in(requests).items()}
    there = {(row["user_id"], request_id_of(key)): row["user_id"] for key, row in server.rows.items()}
    hidden = {
        (user, one)
        for user, name in there
        if (user, name) in turns and (turns[user, name].answer or turns[user, name].tool_calls)
        for one in asked.get((user, name), {}).get("replaces", ())
    }
    search = TurnSearch(MilvusStore(cast(Milvus, PromptMilvus(server, cast(Any, None))), "turns"), SameVector())
    for user in set(there.values()):
        wanted = {key for key in there if key[0] == user}
        yield from _wrong(search, user, wanted - hidden, include_replaced=False)
        yield from _wrong(search, user, wanted, include_replaced=True)


def _wrong(search: TurnSearch, user: str, wanted: set[Key], *, include_replaced: bool) -> Iterator[str]:
    def hits(limit: int) -> list[Hit]:
        query = Query(user_id=user, text="x", limit=limit, include_replaced=include_replaced)
        return asyncio.run(search.search(query))

    found, sides = hits(_ALL), defaultdict[Key, list[str]](list)
    for hit in found:
        sides[hit.user_id, hit.request_id].append(hit.role)
    yield from (f"{key} is replaced, and found" for key in sides.keys() - wanted)
    yield from (f"{key} is not found" for key in wanted - sides.keys())
    yield from (f"{key} is found twice" for key, roles in sides.items() if len({*roles}) < len(roles))
    if len(few := hits(_FEW)) != min(_FEW, len(found)):
        yield f"{len(few)} of {len(found)} rows of {user} are found where {_FEW} are asked for"
