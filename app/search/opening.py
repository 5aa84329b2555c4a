"""The index of a worker, opened only where turns are embedded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from parley_client.plugins import Kind, PluginError

from app.plugins.known import named
from app.search.index import Hide, Index, NoIndex
from app.search.plugged_store import PluggedStore
from app.search.vector_store import IndexRefusedError, OpenVectors, VectorStore
from app.search.writer import IndexWriter
from app.settings import Settings
from models.embedder import Embedder


def check_store(settings: Settings) -> None:
    """Raise `PluginError` unless the store of the settings is installed and can be loaded."""
    if settings.has_index and settings.store != "milvus":
        named(Kind.STORES, settings.store).load()


def open_vectors(settings: Settings) -> VectorStore:
    """The store of the settings, over a new connection; raises `IndexRefusedError` if there is none of its name."""
    try:
        plugin = named(Kind.STORES, settings.store)
        return open_milvus(settings) if settings.store == "milvus" else PluggedStore(plugin, settings)
    except PluginError as error:
        raise IndexRefusedError(f"PARLEY_STORE: {error}") from None


def open_milvus(settings: Settings) -> VectorStore:
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
