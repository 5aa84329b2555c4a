"""Search over the history, and embeddings. The embedder, and with it torch, is loaded when it is first used."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from app.gateway.callers.fair_queue import FairQueue
from app.gateway.edge.errors import ApiError
from app.process.tune_interpreter import freeze_more
from app.search.opening import open_vectors
from app.search.query import TurnSearch
from app.search.vector_store import Hit, IndexMismatchError, Query, SearchError, VectorStore
from app.settings import Settings
from app.wire.error import ErrorCode
from models.embedder import Embedder, EmbedderError, load_embedder

if TYPE_CHECKING:
    from models.embedder.encoder import Vectors


log = logging.getLogger(__name__)

_MILVUS = "app.search.milvus.store"
_AT_ONCE = 4
_SLICE = 16
"""Texts that are embedded in one turn: a batch of the embedder."""
EMBED_S = 60.0
"""The longest that the texts of one request are embedded, waiting for others included."""
_JUDGED_S = 5.0
"""After this time, what would need longer than `EMBED_S` is refused."""


async def _imported() -> None:
    """Import what searches need, once and beside the event loop: it takes seconds."""
    if _MILVUS not in sys.modules:
        await asyncio.to_thread(import_module, _MILVUS)
        freeze_more()


class Searching:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loading = asyncio.Lock()
        self._turns = FairQueue(_AT_ONCE, "searches")
        self._embeddings = FairQueue(1, "embeddings")  # the embedder has one thread
        self._vectors: VectorStore | None = None
        self._embedder: Embedder | None = None
        self._search: TurnSearch | None = None

    async def search(self, query: Query) -> list[Hit]:
        """The hits, best first; raises `ApiError`."""
        await _imported()
        try:
            search = await self._ready()
            async with self._turns.turn(query.user_id):
                return await search.search(query)
        except (IndexMismatchError, EmbedderError) as error:
            log.error("cannot search the history until the settings are changed: %s", error)
            raise ApiError(ErrorCode.UNAVAILABLE, "the history cannot be searched; see the gateway's log") from None
        except SearchError as error:
            log.warning("cannot search the history: %s", error)
            raise ApiError(ErrorCode.UNAVAILABLE, "the history cannot be searched now", retry_after_s=5) from None

    async def embed(self, user_id: str, texts: Sequence[str]) -> tuple[Vectors, int]:
        """The vectors of texts, and how many tokens they have; raises `ApiError`.

        Few texts are embedded in a turn, so requests with many delay others by one turn each. What cannot be embedded
        within `EMBED_S` is refused, as soon as that is known.
        """
        if not self._settings.has_index:
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, "PARLEY_EMBEDDER=none embeds nothing")
        try:
            embedder = await self._loaded()
            return await self._in_turns(embedder, user_id, texts)
        except EmbedderError as error:
            log.error("cannot embed texts: %s", error)
            raise ApiError(ErrorCode.UNAVAILABLE, "texts cannot be embedded; see the gateway's log") from None

    async def _in_turns(self, embedder: Embedder, user_id: str, texts: Sequence[str]) -> tuple[Vectors, int]:
        vectors: Vectors = np.zeros((len(texts), embedder.dimension), dtype=np.float32)
        # Texts of similar length go together, because padding costs as much as words. The shortest are first, so the
        # rest needs no less time for each.
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        tokens, done, worked_s, began = 0, 0, 0.0, time.monotonic()
        try:
            async with asyncio.timeout(EMBED_S):
                for first in range(0, len(order), _SLICE):
                    chosen = order[first : first + _SLICE]
                    part = [texts[number] for number in chosen]
                    async with self._embeddings.turn(user_id, goes_on=first > 0):
                        turn_at = time.monotonic()
                        try:
                            vectors[chosen] = await embedder.embed(part)
                            tokens += await asyncio.to_thread(embedder.count_tokens, part)
                        finally:
                            worked_s += time.monotonic() - turn_at
                    done += len(part)
                    passed_s = time.monotonic() - began
                    if passed_s > _JUDGED_S and passed_s * len(texts) / done > EMBED_S:
                        raise TimeoutError
        except TimeoutError:
            raise _too_slow(done, len(texts), time.monotonic() - began, worked_s) from None
        return vectors, tokens

    async def stop(self) -> None:
        if self._vectors is not None:
            await self._vectors.close()
        if self._embedder is not None:
            await asyncio.to_thread(self._embedder.close)

    async def _ready(self) -> TurnSearch:
        embedder = await self._loaded()
        if self._search is None:
            self._vectors = open_vectors(self._settings)
            self._search = TurnSearch(self._vectors, embedder)
        return self._search

    async def _loaded(self) -> Embedder:
        if not self._settings.has_index:
            raise ApiError(ErrorCode.UNAVAILABLE, "PARLEY_EMBEDDER=none keeps no history")
        async with self._loading:
            if self._embedder is None:
                self._embedder = await asyncio.to_thread(load_embedder, self._settings.embedder)
                freeze_more()
            return self._embedder


def _too_slow(done: int, texts: int, passed_s: float, worked_s: float) -> ApiError:
    message = f"input: {done} of {texts} texts were embedded in {passed_s:.1f} s, and all must be within {EMBED_S:g} s"
    if worked_s < passed_s / 2:
        return ApiError(ErrorCode.OVERLOADED, f"{message}; those of others were in the way", retry_after_s=EMBED_S / 2)
    fewer = max(1, int(done * EMBED_S / passed_s / 2))
    fewer_texts = f"send at most {fewer} texts of this length in a request"
    return ApiError(ErrorCode.INVALID_REQUEST, f"{message}; {fewer_texts}", status=413, param="input")
