"""The index of a worker, opened only where turns are embedded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.search.index import Hide, Index, NoIndex
from app.search.vector_store import OpenVectors, VectorStore
from app.search.writer import IndexWriter
from app.settings import Settings
from models.embedder import Embedder


def open_vectors(settings: Settings) -> VectorStore:
    """The collection of the settings, over a new connection."""
    # pymilvus takes longer to import than all the rest of a process.
    from app.search.milvus.connection import Milvus
    from app.search.milvus.store import MilvusStore

    return MilvusStore(Milvus(settings.milvus_uri, settings.milvus_token), settings.milvus_collection)


def open_index(
    settings: Settings,
    embedder: Embedder | None,
    vectors: OpenVectors = open_vectors,
    *,
    fatal: Callable[[BaseException], None],
    owns: Callable[[int], Awaitable[bool]],
    hide: Hide | None = None,
) -> Index:
    """The index. `owns` confirms a partition before each upsert; `hide` removes private values."""
    if embedder is None:
        return NoIndex()
    return IndexWriter(
        vectors(settings),
        embedder,
        fatal=fatal,
        owns=owns,
        hide=hide,
    )
