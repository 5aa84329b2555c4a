"""Search what one user has written and was answered: by meaning, and by words if the store has full text search.

A turn is replaced by an edit or another answer if the rows of that one name it. So nothing is written to the rows of
what is replaced: rows may come in any order and again, and with the last row that names a turn, by an erasure say, it
is found again. Of the nearest rows those that are replaced are left out, and with too few left more are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from app.search.rows import request_id_of
from app.search.vector_store import Hit, Query, VectorStore, Version
from models.embedder.embedder import Embeds

_MORE = 4
_MOST = 1000
"""Rows of one search: among more that are replaced, nothing else is looked for."""


class TurnSearch:
    def __init__(self, vectors: VectorStore, embedder: Embeds) -> None:
        self._vectors = vectors
        self._embedder = embedder

    async def search(self, query: Query) -> list[Hit]:
        """The hits, best first. Raises `SearchError` and `EmbedderError`."""
        vector = (await self._embedder.embed([query.text], query=True))[0]
        if not vector.any():
            return []
        limit = query.limit
        while True:
            hits = await self._vectors.search(msgspec.structs.replace(query, limit=limit), vector, self._embedder)
            versions = await self._versions(query, hits)
            found = [msgspec.structs.replace(hit, replaced_by=versions.get(hit.request_id)) for hit in hits]
            if not query.include_replaced:
                found = [hit for hit in found if hit.replaced_by is None]
            if len(found) >= query.limit or len(hits) < limit or limit >= _MOST:
                return found[: query.limit]
            limit = min(_MORE * limit, _MOST)

    async def _versions(self, query: Query, hits: Sequence[Hit]) -> Mapping[str, Version]:
        """What stands in the place of these, as far as they are replaced: the latest of each."""
        ids = sorted({hit.request_id for hit in hits})
        rows = await self._vectors.replacements(query.user_id, ids) if ids else ()
        return {
            one: Version(request_id=request_id_of(row["turn_id"]), conversation_id=row["conversation_id"])
            for row in sorted(rows, key=lambda row: (row["asked_at"], row["turn_id"]))
            if not query.covers(row["conversation_id"], row["asked_at"])
            for one in row["replaces"]
        }
