"""A writer under test, and what it reported: the turns that were done and those it rejected."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from app.search.milvus.connection import Milvus
from app.search.vector_store import VectorStore
from app.search.writer import IndexWriter
from app.wire.turn import Turn
from models.embedder.embedder import Embeds
from models.interface.generation import FinishReason, Usage
from tables.erasures import Scope

NOW = 1_700_000_000_000


class Hashed:
    """An embedder that knows no meaning: equal texts have equal vectors."""

    name = "hashed"
    dimension = 8

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> npt.NDArray[np.float32]:
        await asyncio.sleep(0)
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            if text == "no vector":
                continue
            drawn = np.frombuffer(hashlib.sha256(text.encode()).digest(), dtype=np.uint32) / 2**32 - 0.5
            vector[:8] = drawn / np.linalg.norm(drawn)
            if text == "not a number":
                vector[3] = np.nan
        return vectors


def turn(user: str, request: str, prompt: str = "hello", answer: str = "hi", **more: Any) -> Turn:
    given: dict[str, Any] = {"conversation_id": "default", "model_version": "demo", "created_at": NOW, **more}
    return Turn(
        user_id=user,
        request_id=request,
        prompt=prompt,
        answer=answer,
        finish_reason=FinishReason.STOP,
        usage=Usage(1, 1),
        **given,
    )


class Bench:
    """A writer to any store. Use as a context: it starts at the begin and stops at the end."""

    def __init__(self, store: VectorStore, embedder: Embeds | None = None, **options: Any) -> None:
        self.done: list[str] = []
        self.rejected: dict[str, str] = {}
        self.fatal: list[Exception] = []
        self._news = asyncio.Event()
        options = {"delay_s": 0.02, **options}
        self.writer = IndexWriter(store, embedder or Hashed(), fatal=self._end, **options)

    async def __aenter__(self) -> Self:
        self.writer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.writer.stop(grace_s=0)

    def _end(self, error: Exception) -> None:
        self.fatal.append(error)
        self._news.set()

    def submit(self, *turns: Turn, partition: int = 0) -> None:
        for each in turns:
            self.writer.submit(each, functools.partial(self._done, each.request_id), partition)

    def erase(self, user: str, until_ms: int, conversation: str | None = None) -> None:
        self.writer.erase(Scope(user, conversation), until_ms, until_ms, lambda: self._done(f"erase {user}"))

    def _done(self, what: str, refusal: str | None = None) -> None:
        if refusal is not None:
            self.rejected[what] = refusal
        self.done.append(what)
        self._news.set()

    async def settled(self, count: int) -> None:
        """Wait until so many are done, or the writer has ended."""
        async with asyncio.timeout(120):
            while len(self.done) < count and not self.fatal:
                self._news.clear()
                await self._news.wait()
        assert not self.fatal, self.fatal


async def rows_of(milvus: Milvus, collection: str) -> dict[str, dict[str, Any]]:
    fields = ["text", "user_id", "created_at", "role"]
    found = await milvus.call("query", collection, filter='turn_id != ""', limit=16000, output_fields=fields)
    rows = {row["turn_id"]: row for row in found}
    assert len(rows) == len(found), "a key is there twice"
    return rows
