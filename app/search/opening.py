"""The parts of a worker that talk to Milvus, opened only where a history is kept.

Imports stand within the functions: they bring pymilvus, which takes longer than all the rest of a worker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from app.search.sink import HistorySink, NoHistory
from app.settings import Settings
from app.wire.turn import Turn
from models.embedder import Embedder

if TYPE_CHECKING:
    from app.search.milvus import Milvus
    from app.search.related import RelatedTurns


def open_related(settings: Settings, embedder: Embedder | None, milvus: Milvus | None = None) -> RelatedTurns | None:
    """The search for recalled turns; None without an embedder. Its connection is its own: the writer's may be waiting
    for a server that hangs.
    """
    if embedder is None:
        return None
    from app.search.query import HistorySearch  # noqa: PLC0415
    from app.search.related import RelatedTurns  # noqa: PLC0415

    milvus = milvus or _connection(settings)
    search = HistorySearch(milvus, settings.milvus_collection, embedder)
    return RelatedTurns(search, milvus, settings.milvus_collection)


def open_sink(
    settings: Settings,
    embedder: Embedder | None,
    milvus: Milvus | None = None,
    *,
    fatal: Callable[[BaseException], None],
    owns: Callable[[int], Awaitable[bool]],
    hide: Callable[[int, Turn], Awaitable[Turn | None]],
) -> HistorySink:
    """The writer of the index. `owns` confirms a partition before each upsert; `hide` removes private values."""
    if embedder is None:
        return NoHistory()
    from app.search.writer import HistoryWriter  # noqa: PLC0415

    return HistoryWriter(
        milvus or _connection(settings),
        settings.milvus_collection,
        embedder,
        fatal=fatal,
        owns=owns,
        hide=hide,
        batch_rows=settings.index_batch,
        delay_s=settings.index_delay_s,
        flush_s=settings.index_flush_s,
    )


def _connection(settings: Settings) -> Milvus:
    from app.search.milvus import Milvus  # noqa: PLC0415

    return Milvus(settings.milvus_uri, settings.milvus_token)
