"""`VectorStore` in Milvus.

A search has two result lists, by meaning and by words, merged by reciprocal rank fusion (Cormack et al., 2009): cosines
and BM25 scores are not comparable, so they are not added up. Rows of collections from older versions have no
`asked_at`, only the time when their turn ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from pymilvus import AnnSearchRequest, RRFRanker

from app.search.identity import EmbedderMark, Vector
from app.search.milvus.collection import TEXT_FIELDS, Layout, check_embedder, load, open_collection, read_layout
from app.search.milvus.connection import COLLECTION_NOT_FOUND, COLLECTION_NOT_LOADED, Milvus
from app.search.rows import TurnSide, request_id_of
from app.search.stop_words import without_stop_words
from app.search.vector_store import Hit, IndexAwayError, Query, SearchError
from models.embedder.embedder import Embeds
from tables.erasures import Scope

_FIELDS = ["turn_id", "text", "created_at", "embedding", *TEXT_FIELDS]
_RRF_K = 60
_DEPTH = 3
"""Each list is this many times longer than the requested hits, so that a row in both lists is found in both."""
_DELETE_TIMEOUT_S = 60.0
_ALIAS_TRIES = 5
_MOST_ERASED = 100
"""Conversations that a filter leaves out; who searches leaves out what is erased from the hits, too."""
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


class MilvusStore:
    def __init__(self, milvus: Milvus, collection: str) -> None:
        self._milvus = milvus
        self._collection = collection
        self._layout: Layout | None = None
        self._identity: EmbedderMark | None = None

    async def check(self) -> None:
        await self._milvus.call("get_server_version")

    async def open(self, embedder: Embeds) -> None:
        self._layout = None
        identity = await self._identity_of(embedder)
        self._layout = await open_collection(self._milvus, self._collection, identity, embedder.dimension)

    async def upsert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        layout = self._layout
        lacks = () if layout is None else [name for name in ("asked_at", "replaces") if not getattr(layout, name)]
        plain = [{**row, "replaces": " ".join(row.get("replaces", ()))} for row in rows]
        written = [{name: value for name, value in row.items() if name not in lacks} for row in plain]
        await self._milvus.call("upsert", self._collection, written)

    async def erase(self, scope: Scope, until_ms: int, ended_ms: int) -> None:
        about = partial(turns_where, scope.user_id, conversation_id=scope.conversation_id)
        if self._layout is None or self._layout.asked_at:
            await self._delete(about(asked_until_ms=until_ms))
        else:  # everything that had ended by the time of the erasure
            await self._delete(about(before_ms=max(until_ms, ended_ms) + 1))

    async def expire(self, before_ms: int) -> None:
        await self._delete(f"created_at < {before_ms:d}")

    async def flush(self) -> bool:
        """milvus-lite scans unflushed rows in Python; a server decides better by itself when to flush."""
        if self._layout is None or not self._layout.lite:
            return False
        await self._milvus.call("flush", self._collection)
        return True

    async def search(self, query: Query, vector: Vector, embedder: Embeds) -> list[Hit]:
        try:
            return await self._search(query, vector, embedder)
        except IndexAwayError as error:
            self._layout = None
            if error.code == COLLECTION_NOT_FOUND:
                return []
            if error.code != COLLECTION_NOT_LOADED:
                raise
        await load(self._milvus, self._collection)  # the server has restarted and no worker has written since
        return await self._search(query, vector, embedder)

    async def fetch(self, turn_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        where = f"turn_id in [{', '.join(map(literal, turn_ids))}]"
        rows: list[dict[str, Any]] = await self._milvus.call(
            "query", self._collection, filter=where, output_fields=["turn_id", "role", "text"]
        )
        return rows

    async def replacements(self, user_id: str, request_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        if self._layout is None or not self._layout.replaces:
            return ()
        # Of all of the user's versions: milvus-lite would look through arrays for ten times as long.
        where = f'{turns_where(user_id)} and replaces != ""'
        fields = ["turn_id", "conversation_id", "asked_at", "replaces"]
        found = await self._milvus.call("query", self._collection, filter=where, output_fields=fields)
        rows = [{**row, "replaces": row["replaces"].split()} for row in found]
        return [row for row in rows if {*request_ids} & {*row["replaces"]}]

    def named(self, name: str) -> MilvusStore:
        return MilvusStore(self._milvus, name)

    async def replace_by(self, name: str) -> str | None:
        """The name in use becomes an alias. A collection that has the name itself is renamed."""
        layout = await read_layout(self._milvus, self._collection, dimension=None)
        if layout is not None and layout.stored_as != self._collection:
            await self._milvus.call("alter_alias", name, self._collection)
            return layout.stored_as
        former = None if layout is None else f"{name}_former"
        if former is not None:
            await self._milvus.call("rename_collection", self._collection, former)
        for left in reversed(range(_ALIAS_TRIES)):
            try:
                await self._milvus.call("create_alias", name, self._collection)
            except SearchError:
                # A worker found no collection for a moment and created one.
                if not left or not await self._milvus.call("has_collection", self._collection):
                    raise
                await self.drop()
            else:
                break
        return former

    async def drop(self) -> None:
        await self._milvus.call("drop_collection", self._collection)

    async def close(self) -> None:
        await self._milvus.close()

    async def _delete(self, where: str) -> None:
        await self._milvus.call("delete", self._collection, filter=where, timeout_s=_DELETE_TIMEOUT_S)

    async def _identity_of(self, embedder: Embeds) -> EmbedderMark:
        if self._identity is None:
            self._identity = await EmbedderMark.of(embedder)
        return self._identity

    async def _search(self, query: Query, vector: Vector, embedder: Embeds) -> list[Hit]:
        if self._layout is None:
            layout = await read_layout(self._milvus, self._collection, embedder.dimension)
            if layout is None:
                return []
            check_embedder(layout, await self._identity_of(embedder), self._collection)
            self._layout = layout
        where = turns_where(
            query.user_id,
            conversation_id=query.conversation_id,
            role=query.role,
            since_ms=_since(query, self._layout),
            before_ms=query.until,
            asked_after_ms=query.erased_at if query.erased_at and self._layout.asked_at else None,
        )
        since = "asked_at" if self._layout.asked_at else "created_at"
        erased = [*query.erased.items()][-_MOST_ERASED:]
        where = " and ".join([where, *(_not_erased(*one, since) for one in erased)])
        if query.full_text and self._layout.full_text:
            rows = await self._hybrid(query, vector, where, _fields(self._layout))
        else:
            rows = await self._milvus.call(
                "search",
                self._collection,
                [vector],
                anns_field="embedding",
                search_params={"metric_type": "COSINE"},
                filter=where,
                limit=query.limit,
                output_fields=_fields(self._layout),
            )
        return [_hit(row, vector) for row in rows[0]]

    async def _hybrid(self, query: Query, vector: Vector, where: str, fields: list[str]) -> Any:
        depth = query.limit * _DEPTH
        lists = [
            AnnSearchRequest([vector], "embedding", {"metric_type": "COSINE"}, depth, expr=where),
            AnnSearchRequest([without_stop_words(query.text)], "sparse", {"metric_type": "BM25"}, depth, expr=where),
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


def _not_erased(conversation_id: str, at: int, since: str) -> str:
    return f"(conversation_id != {literal(conversation_id)} or {since} > {at:d})"


def _hit(row: Mapping[str, Any], vector: Vector) -> Hit:
    entity = row["entity"]
    return Hit(
        request_id=request_id_of(row["turn_id"]),
        user_id=entity["user_id"],
        conversation_id=entity["conversation_id"],
        role=TurnSide(entity["role"]),
        text=entity["text"],
        created_at=entity["created_at"],
        model_version=entity["model_version"],
        tenant=entity["tenant"],
        score=float(row["distance"]),
        asked_at=entity.get("asked_at") or entity["created_at"],
        similarity=float(np.dot(np.asarray(entity["embedding"], dtype=np.float32), vector)),
    )


def literal(value: str) -> str:
    r"""A string literal that means exactly `value`: milvus-lite has no parameters.

    Not JSON's: milvus-lite has no `\u`. It and a server accept other control characters unescaped.
    """
    return f'"{value.translate(_ESCAPES)}"'


def turns_where(
    user_id: str,
    *,
    conversation_id: str | None = None,
    role: str | None = None,
    since_ms: int | None = None,
    before_ms: int | None = None,
    asked_after_ms: int | None = None,
    asked_until_ms: int | None = None,
) -> str:
    """The rows of one user whose turns ended from `since_ms` to just before `before_ms`.

    `asked_after_ms` and `asked_until_ms` filter by the time of the request, which rows of older collections lack.
    """
    terms = [f"user_id == {literal(user_id)}"]
    if conversation_id is not None:
        terms.append(f"conversation_id == {literal(conversation_id)}")
    if role is not None:
        terms.append(f"role == {literal(role)}")
    if since_ms is not None:
        terms.append(f"created_at >= {since_ms:d}")
    if before_ms is not None:
        terms.append(f"created_at < {before_ms:d}")
    if asked_after_ms is not None:
        terms.append(f"asked_at > {asked_after_ms:d}")
    if asked_until_ms is not None:
        terms.append(f"asked_at <= {asked_until_ms:d}")
    return " and ".join(terms)
