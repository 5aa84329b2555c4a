"""Search one user's history: by meaning, and by words if the server has full text search.

The two result lists are merged by reciprocal rank fusion (Cormack et al., 2009). Cosines and BM25 scores are not
comparable, so they are not added up. `score` orders the hits of one search and has no other meaning; `similarity` is
the cosine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from pymilvus import AnnSearchRequest, RRFRanker

from app.search.collection import TEXT_FIELDS, Layout, check_embedder, load, read_layout
from app.search.errors import COLLECTION_NOT_FOUND, COLLECTION_NOT_LOADED, MilvusAwayError
from app.search.filters import turns_where
from app.search.identity import Embeds, Identity
from app.search.milvus import Milvus
from app.search.rows import Role, request_id_of

_FIELDS = ["turn_id", "text", "created_at", "embedding", *TEXT_FIELDS]
_RRF_K = 60
_DEPTH = 3
"""Each list is this many times longer than the requested hits, so that a row in both lists is found in both."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query over one user's history. Times are Unix milliseconds, from `since` to just before `until`.

    `erased_at`: when the user was last erased. Nothing that was asked up to then is found, even if a row of it is left.
    """

    user_id: str
    text: str
    limit: int = 10
    conversation_id: str | None = None
    role: Role | None = None
    since: int | None = None
    until: int | None = None
    full_text: bool = True
    erased_at: int = 0


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """`asked_at`: when the request was sent; in older collections, when its turn ended."""

    request_id: str
    user_id: str
    conversation_id: str
    role: Role
    text: str
    created_at: int
    model_version: str
    tenant: str
    score: float
    similarity: float
    asked_at: int = 0


class HistorySearch:
    def __init__(self, milvus: Milvus, collection: str, embedder: Embeds) -> None:
        self._milvus = milvus
        self._collection = collection
        self._embedder = embedder
        self._layout: Layout | None = None

    async def search(self, query: Query) -> list[Hit]:
        """The hits, best first. Raises `MilvusError`, `CollectionMismatchError` and `EmbedderError`."""
        vector = (await self._embedder.embed([query.text], query=True))[0]
        if not vector.any():
            return []
        try:
            return await self._ask(query, vector)
        except MilvusAwayError as error:
            self._layout = None
            if error.code == COLLECTION_NOT_FOUND:
                return []
            if error.code != COLLECTION_NOT_LOADED:
                raise
        await load(self._milvus, self._collection)  # the server has restarted and no worker has written since
        return await self._ask(query, vector)

    async def _ask(self, query: Query, vector: Any) -> list[Hit]:
        if self._layout is None:
            layout = await read_layout(self._milvus, self._collection, self._embedder.dimension)
            if layout is None:
                return []
            check_embedder(layout, await Identity.of(self._embedder), self._collection)
            self._layout = layout
        where = turns_where(
            query.user_id,
            conversation_id=query.conversation_id,
            role=query.role,
            since_ms=_since(query, self._layout),
            before_ms=query.until,
            asked_after_ms=query.erased_at if query.erased_at and self._layout.asked_at else None,
        )
        if query.full_text and self._layout.full_text:
            found = await self._hybrid(query, vector, where, _fields(self._layout))
        else:
            found = await self._milvus.call(
                "search",
                self._collection,
                [vector],
                anns_field="embedding",
                search_params={"metric_type": "COSINE"},
                filter=where,
                limit=query.limit,
                output_fields=_fields(self._layout),
            )
        return [_hit(row, vector) for row in found[0]]

    async def _hybrid(self, query: Query, vector: Any, where: str, fields: list[str]) -> Any:
        depth = query.limit * _DEPTH
        lists = [
            AnnSearchRequest([vector], "embedding", {"metric_type": "COSINE"}, depth, expr=where),
            AnnSearchRequest([query.text], "sparse", {"metric_type": "BM25"}, depth, expr=where),
        ]
        return await self._milvus.call(
            "hybrid_search", self._collection, lists, RRFRanker(_RRF_K), limit=query.limit, output_fields=fields
        )


def _fields(layout: Layout) -> list[str]:
    return [*_FIELDS, "asked_at"] if layout.asked_at else _FIELDS


def _since(query: Query, layout: Layout) -> int | None:
    """Rows of older collections only have the end time of their turn."""
    if not query.erased_at or layout.asked_at:
        return query.since
    return max(query.erased_at + 1, query.since or 0)


def _hit(row: Mapping[str, Any], vector: Any) -> Hit:
    entity = row["entity"]
    return Hit(
        request_id=request_id_of(row["turn_id"]),
        user_id=entity["user_id"],
        conversation_id=entity["conversation_id"],
        role=Role(entity["role"]),
        text=entity["text"],
        created_at=entity["created_at"],
        model_version=entity["model_version"],
        tenant=entity["tenant"],
        score=float(row["distance"]),
        asked_at=entity.get("asked_at") or entity["created_at"],
        similarity=float(np.dot(np.asarray(entity["embedding"], dtype=np.float32), vector)),
    )
