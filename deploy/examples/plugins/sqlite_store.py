"""A vector store: the history in one SQLite file, for some 100,000 turns on one machine.

PARLEY_STORE=sqlite PARLEY_MILVUS_URI=/srv/history.db
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from parley_client.plugins import Found, Search, Store, StoreOptions


class SqliteStore(Store):
    """Its calls block its own thread alone; SQLite lets one process write at a time, and the others wait."""

    def __init__(self, options: StoreOptions) -> None:
        self._address = options.address
        self._name = f"{options.collection} {options.embedder} {options.dimensions}"
        self._opened: sqlite3.Connection | None = None

    async def open(self) -> None:
        with self._file as file:
            file.execute(
                "CREATE TABLE IF NOT EXISTS turns (name TEXT, turn_id TEXT, user_id TEXT, conversation_id TEXT,"
                " created_at INTEGER, asked_at INTEGER, row TEXT, PRIMARY KEY (name, turn_id))"
            )
            file.execute("CREATE INDEX IF NOT EXISTS of_users ON turns (name, user_id)")

    async def upsert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        names = ("turn_id", "user_id", "conversation_id", "created_at", "asked_at")
        values = [(self._name, *(row[name] for name in names), json.dumps(row)) for row in rows]
        with self._file as file:
            file.executemany("REPLACE INTO turns VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    async def erase(self, user_id: str, conversation_id: str | None, until: int) -> None:
        with self._file as file:
            file.execute(
                "DELETE FROM turns WHERE name = ? AND user_id = ? AND asked_at <= ?"
                " AND (? IS NULL OR conversation_id = ?)",
                (self._name, user_id, until, conversation_id, conversation_id),
            )

    async def expire(self, before: int) -> None:
        with self._file as file:
            file.execute("DELETE FROM turns WHERE name = ? AND created_at < ?", (self._name, before))

    async def search(self, search: Search) -> Sequence[Found]:
        query = "SELECT row FROM turns WHERE name = ? AND user_id = ?"
        rows = [json.loads(text) for (text,) in self._file.execute(query, (self._name, search.user_id))]
        found = [Found(row, _cosine(row["embedding"], search.vector)) for row in rows if search.takes(row)]
        return sorted(found, key=lambda one: -one.similarity)[: search.limit]

    async def fetch(self, turn_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        query = "SELECT row FROM turns WHERE name = ? AND turn_id IN (SELECT value FROM json_each(?))"
        return [json.loads(text) for (text,) in self._file.execute(query, (self._name, json.dumps([*turn_ids])))]

    async def replacements(self, user_id: str, request_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        query = "SELECT row FROM turns WHERE name = ? AND user_id = ?"
        rows = [json.loads(text) for (text,) in self._file.execute(query, (self._name, user_id))]
        return [row for row in rows if {*request_ids} & {*row.get("replaces", ())}]

    async def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def _file(self) -> sqlite3.Connection:
        """As a context it is a transaction."""
        if self._opened is None:
            self._opened = sqlite3.connect(self._address, timeout=5.0, check_same_thread=False)
        return self._opened


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of vectors of length 1."""
    return sum(a * b for a, b in zip(one, other, strict=True))
