"""The older turns of a user that are related to a question, for its prompt.

The rows of both sides are searched. A turn counts by its best row, and is fetched whole by the keys of its rows.
Without a result in time there are no related turns, and the answer begins.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.search.query import TurnSearch
from app.search.rows import TurnSide, request_id_of, turn_id
from app.search.vector_store import Hit, Query, SearchError, VectorStore
from app.wire.event import RecalledTurn
from models.embedder import EmbedderError
from models.embedder.embedder import Embeds
from models.interface.unexpected import type_and_line

log = logging.getLogger(__name__)

MOST_CHARACTERS = 2000
"""Of each side of a turn. The notice `plan` holds them, and a record has room for 1 MiB."""


@dataclass(slots=True)
class RecallStats:
    """Look-ups by their outcome (`found`, `nothing`, `late`, `away`), and the seconds that they took in all."""

    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("found", "nothing", "late", "away"), 0))
    seconds: float = 0.0


class RelatedTurns:
    def __init__(self, vectors: VectorStore, embedder: Embeds) -> None:
        self.stats = RecallStats()
        self._vectors = vectors
        self._search = TurnSearch(vectors, embedder)

    async def find(self, query: Query, budget_s: float) -> list[RecalledTurn]:
        """The most related turns first, of at most as many rows as the query's limit; none if that takes longer than
        the budget, or if the index is away.
        """
        began = time.monotonic()
        turns: list[RecalledTurn] = []
        try:
            async with asyncio.timeout(budget_s):
                turns = await self._find(query)
            outcome = "found" if turns else "nothing"
        except TimeoutError:
            outcome = "late"
        except (SearchError, EmbedderError) as error:
            log.warning("no related turns for a prompt: %s", error)
            outcome = "away"
        except Exception as error:  # noqa: BLE001 - rows of any form: the answer needs none of them
            log.warning("no related turns for a prompt: %s", type_and_line(error))
            outcome = "away"
        self.stats.outcomes[outcome] += 1
        self.stats.seconds += time.monotonic() - began
        return turns

    async def close(self) -> None:
        await self._vectors.close()

    async def _find(self, query: Query) -> list[RecalledTurn]:
        hits = await self._search.search(query)
        # The sides of one turn are two rows.
        ids = list(dict.fromkeys(hit.request_id for hit in hits))
        if not ids:
            return []
        rows = await self._vectors.fetch([turn_id(query.user_id, one, role) for one in ids for role in TurnSide])
        found = {hit.request_id: hit for hit in hits}
        sides: dict[str, dict[str, Mapping[str, Any]]] = {}
        for row in rows:
            sides.setdefault(request_id_of(row["turn_id"]), {})[row["role"]] = row
        return [_turn(found[one], sides[one]) for one in ids if one in sides]


def _turn(hit: Hit, sides: Mapping[str, Mapping[str, Any]]) -> RecalledTurn:
    texts = {role: sides[role]["text"][:MOST_CHARACTERS] if role in sides else "" for role in TurnSide}
    return RecalledTurn(
        hit.request_id, texts[TurnSide.USER], texts[TurnSide.ASSISTANT], hit.asked_at, hit.conversation_id
    )
