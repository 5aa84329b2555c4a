"""The rows of the tables, and their keys.

| table | key | value |
|---|---|---|
| conversations | `["user","conversation"]` | `Conversation` |
| ended | `["user","request id"]` | `Ended` |
| erased | `["user"]` | `Erased` |
| usage | tables/usage.py | |

Keys and values are JSON in UTF-8, so a changelog can be read with any Kafka tool. No value holds its own expiry, only
the time of the last activity: the TTL can change over a populated store. Times are Unix milliseconds.
"""

from __future__ import annotations

import enum
from typing import TypeVar

import msgspec


class Table(enum.Enum):
    CONVERSATIONS = "conversations"
    ENDED = "ended"
    ERASED = "erased"
    USAGE = "usage"


class Turn(msgspec.Struct, frozen=True):
    request_id: str
    prompt: str
    answer: str
    at: int


class Conversation(msgspec.Struct, frozen=True):
    """The last turns of a conversation, oldest first; `last_activity` is the end of the newest."""

    last_activity: int
    turns: tuple[Turn, ...] = ()


class Activity(msgspec.Struct, frozen=True):
    """What a `Conversation` is decoded as where its age alone matters: its turns are skipped over."""

    last_activity: int


class Ended(msgspec.Struct, frozen=True):
    """A request that got its end, error ends too, and so gets no second one."""

    at: int


class Erased(msgspec.Struct, frozen=True):
    """A user whose records up to `at` must not come back, whatever is replayed.

    at: The time of the erasure.
    indexed: The time up to which the user's rows are deleted in Milvus, too; it follows `at`.
    applied: When the erasure was carried out. Answers that were begun before that may build on what it erased.
    """

    at: int
    indexed: int = 0
    applied: int = 0

    @property
    def done(self) -> bool:
        return self.indexed >= self.at


class Change(msgspec.Struct, frozen=True):
    """A row to put, or to delete where `value` is None; one record of the table's changelog."""

    table: Table
    key: bytes
    value: bytes | None


Row = TypeVar("Row", Conversation, Activity, Ended, Erased)

encode = msgspec.json.encode


def decode(value: bytes, row: type[Row]) -> Row:
    return msgspec.json.decode(value, type=row)


def key(*parts: str) -> bytes:
    return encode(parts)


def key_parts(raw: bytes) -> tuple[str, ...]:
    return msgspec.json.decode(raw, type=tuple[str, ...])


def user_prefix(user_id: str) -> bytes:
    """What the keys of all rows of a user begin with, where the key has a second part."""
    return encode([user_id])[:-1] + b","
