"""The rows of the tables, and their keys.

| table | key | value |
|---|---|---|
| conversations | `["user","conversation"]` | `Conversation` |
| ended | `["user","request id"]` | `Ended` |
| erased | `["user"]`, or `["","user","conversation"]` | `Erased` |
| usage | tables/usage.py | |
| calls | tables/tool_calls.py | |
| asleep | tables/asleep.py | |
| audit | `AUDIT_HEAD` | `AuditHead` |
| audit | `AUDIT_KEY` | `AuditKey` |
| guard | `GUARD_SECRET` | `GuardSecret` |
| intake | `["topic","partition"]` | `Taken` |

Keys and values are JSON in UTF-8, so any Kafka tool can read a changelog. A value holds the time of its last activity
and not its expiry, so the TTL can be changed on a populated store. Times are Unix milliseconds.
"""

from __future__ import annotations

import enum
from typing import TypeVar

import msgspec

from app.private.value import PrivateValue
from models.interface.chat import ChatMessage


class Table(enum.Enum):
    CONVERSATIONS = "conversations"
    ENDED = "ended"
    ERASED = "erased"
    USAGE = "usage"
    CALLS = "calls"
    AUDIT = "audit"
    GUARD = "guard"
    INTAKE = "intake"
    ASLEEP = "asleep"


class KeptTurn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn of a conversation, which ended `at`.

    steps: Calls of tools and their results, between prompt and answer. A turn that ended in calls has no answer; its
        last step has them.
    before: Messages before the prompt that belong to no other turn.
    after: The request whose turn precedes it, if that is not the turn before it in the row.
    private: The private values in its texts; None if nothing has looked for them.
    open: Its answer waits: its calls have no results yet, and its own end replaces it.
    called_at: The token behind which its answer called tools over Kafka for the first time.
    """

    request_id: str
    prompt: str
    answer: str
    at: int
    steps: tuple[ChatMessage, ...] = ()
    before: tuple[ChatMessage, ...] = ()
    after: str = ""
    private: tuple[PrivateValue, ...] | None = None
    open: bool = False
    called_at: int | None = None

    @property
    def open_calls(self) -> frozenset[str]:
        """Ids of the calls in which it ended."""
        last = self.steps[-1] if self.steps and not self.answer else None
        return frozenset(call.id for call in last.calls) if last is not None else frozenset()


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a conversation began with as a copy of others (app/features/forks.py).

    by: The request that made the copy, of the time `at` in Unix milliseconds.
    sources: The conversations that its turns come from: the one that was copied, and that one's own.
    turns: The copied ones.
    known: When each source was last erased, as far as its reader knew; `erased` has them by source.
    """

    by: str
    at: int
    sources: tuple[str, ...]
    turns: tuple[str, ...] = ()
    known: tuple[int, ...] = ()

    @property
    def erased(self) -> dict[str, int]:  # rows of former versions lack `known`
        return dict(zip(self.sources, self.known or [self.at - 1] * len(self.sources), strict=True))


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last turns of a conversation, oldest first; `last_activity` is the end time of the newest.

    erased_at: The last erasure of it or its user (`Erased.at`) before the row was written; it holds nothing older.
    """

    last_activity: int
    turns: tuple[KeptTurn, ...] = ()
    erased_at: int = 0
    origin: Origin | None = None


class Activity(msgspec.Struct, frozen=True):
    """What scans decode of a `Conversation`: its age and its origin, without its turns."""

    last_activity: int
    erased_at: int = 0
    origin: Origin | None = None


class Ended(msgspec.Struct, frozen=True):
    """A request that has ended, also with an error; a second record with its id is a duplicate."""

    at: int


class Erased(msgspec.Struct, frozen=True):
    """A user, or a conversation, whose records up to `at` are erased and must not come back by a replay.

    at: Time of the erasure.
    indexed: The rows of the tables and in Milvus are deleted up to this time; it follows `at`.
    applied: When the erasure was carried out. Answers that began before this time may quote what was erased.
    """

    at: int
    indexed: int = 0
    applied: int = 0

    @property
    def done(self) -> bool:
        return self.indexed >= self.at

    def hides(self, conversation: Conversation | Activity) -> bool:
        """Whether the row is older than the erasure, which has not deleted it yet."""
        return not self.done and conversation.erased_at < self.at


class AuditHead(msgspec.Struct, frozen=True):
    """The last record of the partition's chain on `audit`: its sequence, -1 before the first, and the SHA-256 of its
    value.
    """

    sequence: int = -1
    hash: str = ""


class AuditKey(msgspec.Struct, frozen=True):
    """The key of the digests of texts in the partition's records on `audit` (app/delivery/commits/audit_chain.py)."""

    key: bytes


class GuardSecret(msgspec.Struct, frozen=True):
    """The key of the partition's placeholders (app/private/mask.py)."""

    secret: bytes


class Taken(msgspec.Struct, frozen=True, omit_defaults=True):
    """The offset up to which the records of a foreign partition have become requests, and the id of their schema if the
    policy names none.
    """

    next: int
    schema_id: int | None = None


class RowChange(msgspec.Struct, frozen=True):
    """A row to put, or to delete if `value` is None; one record of the table's changelog."""

    table: Table
    key: bytes
    value: bytes | None


Row = TypeVar("Row", bound=msgspec.Struct)

encode = msgspec.json.encode


def decode_row(value: bytes, row: type[Row]) -> Row:
    return msgspec.json.decode(value, type=row)


def key(*parts: str) -> bytes:
    return encode(parts)


AUDIT_HEAD = key("head")
AUDIT_KEY = key("key")
GUARD_SECRET = key("secret")


def key_parts(raw: bytes) -> tuple[str, ...]:
    return msgspec.json.decode(raw, type=tuple[str, ...])


def prefix_of(*parts: str) -> bytes:
    """The common prefix of the keys that begin with these parts and have more."""
    return encode(parts)[:-1] + b","
