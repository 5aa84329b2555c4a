"""A vector store for the history: `PARLEY_STORE` names it.

A turn is written at least once, in any order, and by a former owner of its partition, too, whose call may land late.
An erasure is repeated until such calls have landed. So rows are replaced by their `turn_id`, and `erase` deletes by
what the rows say. After an error the same call is made again, until it passes; a `ValueError` says that it never will.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """`collection` is PARLEY_MILVUS_COLLECTION, `address` PARLEY_MILVUS_URI, `token` PARLEY_MILVUS_TOKEN. `embedder` is
    the name of what makes the vectors, which have so many `dimensions`: a collection of another one cannot be used.
    """

    collection: str
    address: str
    token: str
    embedder: str
    dimensions: int


@dataclass(frozen=True, slots=True)
class Search:
    """The nearest rows of one user. Times are Unix milliseconds; of `since` <= `created_at` < `until`, where set.

    Only rows with `asked_at` > `erased_at`, and of each conversation in `erased` with `asked_at` above that time.
    """

    user_id: str
    text: str
    vector: Sequence[float]
    limit: int
    conversation_id: str | None = None
    role: str | None = None
    since: int | None = None
    until: int | None = None
    erased_at: int = 0
    erased: Mapping[str, int] | None = None

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether the row is one of those that are searched: the rule in one place, for a store without filters."""
        asked, created, conversation = row["asked_at"], row["created_at"], row["conversation_id"]
        return (
            row["user_id"] == self.user_id
            and self.conversation_id in {None, conversation}
            and self.role in {None, row["role"]}
            and (self.since is None or created >= self.since)
            and (self.until is None or created < self.until)
            and asked > self.erased_at
            and asked > (self.erased or {}).get(conversation, 0)
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A row, and the cosine between its vector and that of the search, -1 to 1."""

    row: Mapping[str, Any]
    similarity: float


class Store(Protocol):
    """Each worker has two, gateways and commands that search have one; they share what is stored.

    A row is a dictionary: `turn_id` (its key), `user_id`, `conversation_id`, `role` (`user` or `assistant`), `text`,
    `tenant`, `model_version` (texts), `created_at`, `asked_at` (Unix milliseconds), `embedding` (floats, length 1); for
    a store that has `replacements` also `replaces` (request ids).
    """

    def __init__(self, options: StoreOptions) -> None:
        """Connect to nothing yet."""

    async def open(self) -> None:
        """Make the collection if it is missing; called again after each failure of another call."""
        return

    async def upsert(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the rows; one with the same `turn_id` is replaced. They are there when this returns."""
        raise NotImplementedError

    async def erase(self, user_id: str, conversation_id: str | None, until: int) -> None:
        """Delete the user's rows, of one conversation or of all, with `asked_at` <= `until`."""
        raise NotImplementedError

    async def expire(self, before: int) -> None:
        """Delete all rows with `created_at` < `before`."""
        raise NotImplementedError

    async def search(self, search: Search) -> Sequence[Found]:
        """The best first, at most `limit`."""
        raise NotImplementedError

    async def fetch(self, turn_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Those of these rows that exist, in any order."""
        raise NotImplementedError

    async def replacements(self, user_id: str, request_ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002
        """The user's rows whose `replaces` has one of these ids, in any order. Without this method searches find the
        turns that edits and other answers have replaced.
        """
        return ()

    async def close(self) -> None:
        """Nothing is called any more."""
        return
