"""Vector stores of other packages: `PARLEY_STORE`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn

from parley_client.plugins import Found, Plugin, PluginError, Refused, Search, Store, StoreOptions

from app.plugins.running import PluginFailedError, PluginRoom
from app.search.identity import Vector
from app.search.rows import TurnSide, request_id_of
from app.search.vector_store import Hit, IndexAwayError, IndexRefusedError, Query
from app.settings import Settings
from models.embedder.embedder import Embeds
from tables.erasures import Scope

_NO_REINDEX = "PARLEY_STORE is a plug-in: name a fresh PARLEY_MILVUS_COLLECTION and replay `turns` into it"


class PluggedStore:
    """Implements `VectorStore`. The plug-in is made at the first call that knows the embedder."""

    def __init__(self, plugin: Plugin, settings: Settings) -> None:
        self._plugin, self._settings = plugin, settings
        self._room = PluginRoom(plugin)
        self._store: Store | None = None

    async def check(self) -> None:
        await self._call(lambda store: store.fetch([]))

    async def open(self, embedder: Embeds) -> None:
        await self._made(embedder)
        await self._call(lambda store: store.open())

    async def upsert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        plain = [{**row, "embedding": [float(one) for one in row["embedding"]]} for row in rows]
        for row in plain:
            replaces = row.pop("replaces", ())
            if self._knows_versions:
                row["replaces"] = [*replaces]
        await self._call(lambda store: store.upsert(plain))

    async def erase(self, scope: Scope, until_ms: int, ended_ms: int) -> None:  # noqa: ARG002 - its rows have `asked_at`
        await self._call(lambda store: store.erase(scope.user_id, scope.conversation_id, until_ms))

    async def expire(self, before_ms: int) -> None:
        await self._call(lambda store: store.expire(before_ms))

    async def flush(self) -> bool:
        return False

    async def search(self, query: Query, vector: Vector, embedder: Embeds) -> list[Hit]:
        if self._store is None:
            await self.open(embedder)
        search = Search(
            user_id=query.user_id,
            text=query.text,
            vector=[float(one) for one in vector],
            limit=query.limit,
            conversation_id=query.conversation_id,
            role=None if query.role is None else query.role.value,
            since=query.since,
            until=query.until,
            erased_at=query.erased_at,
            erased=dict(query.erased),
        )
        found: Sequence[Found] = await self._call(lambda store: store.search(search))
        # What it should have left out is nobody's to read: it is left out here, too.
        return [_hit(one) for one in found if search.takes(one.row)][: query.limit]

    async def fetch(self, turn_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = await self._call(lambda store: store.fetch(turn_ids))
        return found

    async def replacements(self, user_id: str, request_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        if not self._knows_versions:
            return ()
        rows: Sequence[Mapping[str, Any]] = await self._call(lambda store: store.replacements(user_id, request_ids))
        return rows

    @property
    def _knows_versions(self) -> bool:
        """Whether it has the method, which stores of the version before lack."""
        return getattr(type(self._store), "replacements", Store.replacements) is not Store.replacements

    def named(self, name: str) -> NoReturn:  # noqa: ARG002
        raise IndexRefusedError(_NO_REINDEX)

    async def replace_by(self, name: str) -> NoReturn:  # noqa: ARG002
        raise IndexRefusedError(_NO_REINDEX)

    async def drop(self) -> None:
        raise IndexRefusedError(_NO_REINDEX)

    async def close(self) -> None:
        if self._store is not None:
            await self._room.close(self._store.close)

    async def _made(self, embedder: Embeds) -> None:
        if self._store is not None:
            return
        one = self._settings
        options = StoreOptions(
            one.milvus_collection, one.milvus_uri, one.milvus_token, embedder.name, embedder.dimension
        )
        try:
            self._store = await asyncio.to_thread(self._plugin.made, options) if self._room.threaded else None
            self._store = self._store or self._plugin.made(options)
        except PluginError as error:
            raise IndexRefusedError(f"PARLEY_STORE: {error}") from None

    async def _call(self, work: Callable[[Store], Awaitable[Any]]) -> Any:
        """Its result. An unknown error counts as one that passes: writing a row late is better than losing it."""
        store = self._store
        if store is None:
            raise IndexAwayError("the store is not open yet")
        try:
            return await self._room.call(lambda: work(store))
        except (PluginFailedError, Refused) as error:
            kind = IndexRefusedError if isinstance(error.__cause__, ValueError) else IndexAwayError
            raise kind(str(error)) from None


def _hit(found: Found) -> Hit:
    row = found.row
    return Hit(
        request_id=request_id_of(row["turn_id"]),
        user_id=row["user_id"],
        conversation_id=row["conversation_id"],
        role=TurnSide(row["role"]),
        text=row["text"],
        created_at=row["created_at"],
        model_version=row["model_version"],
        tenant=row["tenant"],
        score=found.similarity,
        asked_at=row["asked_at"],
        similarity=found.similarity,
    )
