"""The interface of a vector database, and its errors by what to do next.

Two questions matter: may the same call succeed later (`IndexAwayError`), or is the call itself wrong
(`IndexRefusedError`)? An unknown error counts as the former: writing a row late is better than losing it.
Another database is a plug-in (plugged_store.py), or a class like `MilvusStore` with its line in opening.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from app.search.identity import Vector
from app.search.rows import TurnSide
from app.settings import Settings
from models.embedder.embedder import Embeds
from tables.erasures import Scope


class SearchError(Exception):
    """One line for people; `code` is the server's, if it sent one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class IndexAwayError(SearchError):
    """Unreachable, not answering, or not ready: the same call may succeed later."""


class IndexRefusedError(SearchError):
    """The server understood the call and will always reject it."""


class IndexMismatchError(SearchError):
    """The collection cannot hold these rows; the message has the remedy."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query over one user's turns. Times are Unix milliseconds, from `since` to just before `until`.

    `erased_at`: when the user was last erased. Nothing that was asked up to then is found, even if a row of it is left.
    `erased`: the same for conversations of the user that are being erased.
    `include_replaced`: whether turns are found in whose place another one stands.
    """

    user_id: str
    text: str
    limit: int = 10
    conversation_id: str | None = None
    role: TurnSide | None = None
    since: int | None = None
    until: int | None = None
    full_text: bool = True
    erased_at: int = 0
    erased: Mapping[str, int] = {}
    include_replaced: bool = False

    def covers(self, conversation_id: str, asked_at: int) -> bool:
        """Whether a turn of that time is erased."""
        return asked_at <= max(self.erased_at, self.erased.get(conversation_id, 0))


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """The turn of a request that stands in the place of another one."""

    request_id: str
    conversation_id: str


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """`score` orders the hits of one search and has no other meaning; `similarity` is the cosine.

    `asked_at`: when the request was sent; in older collections, when its turn ended. `replaced_by`: the latest turn in
    the place of this one.
    """

    request_id: str
    user_id: str
    conversation_id: str
    role: TurnSide
    text: str
    created_at: int
    model_version: str
    tenant: str
    score: float
    similarity: float
    asked_at: int = 0
    replaced_by: Version | None = None


class VectorStore(Protocol):
    """One collection of turns, over a connection of its own; for one event loop. Rows have the fields of `IndexRow`.

    Each call has a deadline. All raise `IndexAwayError` and `IndexRefusedError`.
    """

    async def check(self) -> None:
        """Raise unless the server answers."""

    async def open(self, embedder: Embeds) -> None:
        """Create the collection if it is missing, check and load it; again after each failure of another call.

        Raises `IndexMismatchError` if another embedder has filled it, or another program.
        """

    async def upsert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows with their vectors, as `embedding`; a row of the same `turn_id` is replaced."""

    async def erase(self, scope: Scope, until_ms: int, ended_ms: int) -> None:
        """Delete the rows of what was asked up to `until_ms`; such turns had ended by `ended_ms`."""

    async def expire(self, before_ms: int) -> None:
        """Delete all rows of turns that ended before that time."""

    async def flush(self) -> bool:
        """Make what was written fast to search; whether there was anything to do."""

    async def search(self, query: Query, vector: Vector, embedder: Embeds) -> list[Hit]:
        """The best rows for the query, whose text has that vector; none if there is no collection yet.

        Raises `IndexMismatchError`.
        """

    async def fetch(self, turn_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """`turn_id`, `role` and `text` of these rows, as far as they exist, in any order."""

    async def replacements(self, user_id: str, request_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """`turn_id`, `conversation_id`, `asked_at` and `replaces` of the user's rows that replace a turn of these
        requests, in any order.
        """

    def named(self, name: str) -> VectorStore:
        """Another collection over the same connection."""

    async def replace_by(self, name: str) -> str | None:
        """Make the collection's name mean the collection `name`; returns where the former rows are now, if any."""

    async def drop(self) -> None:
        """Delete the collection."""

    async def close(self) -> None:
        """Close the connection."""


OpenVectors = Callable[[Settings], VectorStore]
