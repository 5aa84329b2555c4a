"""Search what one user has written and was answered: by meaning, and by words if the store has full text search."""

from __future__ import annotations

from app.search.vector_store import Hit, Query, VectorStore
from models.embedder.embedder import Embeds


class TurnSearch:
    def __init__(self, vectors: VectorStore, embedder: Embeds) -> None:
        self._vectors = vectors
        self._embedder = embedder

    async def search(self, query: Query) -> list[Hit]:
        """The hits, best first. Raises `SearchError` and `EmbedderError`."""
        vector = (await self._embedder.embed([query.text], query=True))[0]
        return await self._vectors.search(query, vector, self._embedder) if vector.any() else []
