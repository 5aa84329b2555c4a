"""Search what one user has written and was answered: by meaning, and by words if the store has full text search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from app.search.rows import Role

if TYPE_CHECKING:
    from app.search.identity import Embeds
    from app.search.vector_store import VectorStore


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query over one user's turns. Times are Unix milliseconds, from `since` to just before `until`.

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
    """`score` orders the hits of one search and has no other meaning; `similarity` is the cosine.

    `asked_at`: when the request was sent; in older collections, when its turn ended.
    """

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


class TurnSearch:
    def __init__(self, vectors: VectorStore, embedder: Embeds) -> None:
        self._vectors = vectors
        self._embedder = embedder

    async def search(self, query: Query) -> list[Hit]:
        """The hits, best first. Raises `SearchError` and `EmbedderError`."""
        vector = (await self._embedder.embed([query.text], query=True))[0]
        return await self._vectors.search(query, vector, self._embedder) if vector.any() else []
