"""The older turns of a user that are related to a question, for its prompt.

The rows of both sides are searched. A turn counts by its best row, and is fetched whole by the keys of its rows.
Without a result in time there are no related turns, and the answer begins.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from app.search.errors import CollectionMismatchError, MilvusError
from app.search.filters import literal
from app.search.milvus import Milvus
from app.search.query import HistorySearch, Query
from app.search.rows import Role, request_id_of, turn_id
from app.search.stats import RecallStats
from app.wire.event import RecalledTurn
from models.embedder import EmbedderError
from models.unexpected import type_and_place

log = logging.getLogger(__name__)

MOST_CHARACTERS = 2000
"""Of each side of a turn. The notice `plan` holds them, and a record has room for 1 MiB."""
_FIELDS = ["turn_id", "role", "text", "created_at"]


class RelatedTurns:
    """`search` and `milvus` are of one event loop. The collection's name is `collection`."""

    def __init__(self, search: HistorySearch, milvus: Milvus, collection: str) -> None:
        self.stats = RecallStats()
        self._search = search
        self._milvus = milvus
        self._collection = collection

    async def find(self, query: Query, budget_s: float) -> list[RecalledTurn]:
        """The most related turns first, of at most as many rows as the query's limit; none if that takes longer than
        the budget, or if Milvus is away.
        """
        began = time.monotonic()
        found: list[RecalledTurn] = []
        try:
            async with asyncio.timeout(budget_s):
                found = await self._find(query)
            outcome = "found" if found else "nothing"
        except TimeoutError:
            outcome = "late"
        except (MilvusError, CollectionMismatchError, EmbedderError) as error:
            log.warning("no related turns for a prompt: %s", error)
            outcome = "away"
        except Exception as error:  # noqa: BLE001 - rows of any form: the answer needs none of them
            log.warning("no related turns for a prompt: %s", type_and_place(error))
            outcome = "away"
        self.stats.outcomes[outcome] += 1
        self.stats.seconds += time.monotonic() - began
        return found

    async def close(self) -> None:
        await self._milvus.close()

    async def _find(self, query: Query) -> list[RecalledTurn]:
        hits = await self._search.search(query)
        # The sides of one turn are two rows.
        ids = list(dict.fromkeys(hit.request_id for hit in hits))
        if not ids:
            return []
        keys = [literal(turn_id(query.user_id, one, role)) for one in ids for role in Role]
        rows = await self._milvus.call(
            "query", self._collection, filter=f"turn_id in [{', '.join(keys)}]", output_fields=_FIELDS
        )
        asked_at = {hit.request_id: hit.asked_at for hit in hits}
        sides: dict[str, dict[str, Mapping[str, Any]]] = {}
        for row in rows:
            sides.setdefault(request_id_of(row["turn_id"]), {})[row["role"]] = row
        return [_turn(one, sides[one], asked_at[one]) for one in ids if one in sides]


def _turn(request_id: str, sides: Mapping[str, Mapping[str, Any]], asked_at: int) -> RecalledTurn:
    texts = {role: sides[role]["text"][:MOST_CHARACTERS] if role in sides else "" for role in Role}
    return RecalledTurn(request_id, texts[Role.USER], texts[Role.ASSISTANT], asked_at)
