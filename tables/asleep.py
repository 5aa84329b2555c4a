"""Answers that wait without being open: rows of the table `asleep`.

A request whose answer waits for a tool is *asleep*: its offset is committed, and these rows have all that its answer
needs to go on. It is *awake* once its record is on `requests` again. Its rows are there until the transaction that ends
it. Each part is a row of its own, so that all stay below what a record may have, and a scan of heads reads no texts:

| key | value |
|---|---|
| `["wait","user","request id"]` | `Head` |
| `["record","user","request id"]` | the value of the request's record, as it came |
| `["answer","user","request id"]` | `KeptAnswer` |
| `["memory","user","request id"]` | `KeptMemory` |
| `["rounds","user","request id"]` | `ToolRounds` (tables/tool_calls.py) |

Workers that do not know the table leave it alone, and so do sweeps: a row of `calls` expires by the time of its
request, a row of this table does not. Times are Unix milliseconds of the broker's clock.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from app.wire.event import NO_PLAN, Plan, TokenEvent
from tables.records import KeptTurn, Row, RowChange, Table, decode_row, encode, key, key_parts, prefix_of
from tables.store import PartitionStore
from tables.tool_calls import ToolRounds


class Part(enum.StrEnum):
    WAIT = "wait"
    RECORD = "record"
    ANSWER = "answer"
    MEMORY = "memory"
    ROUNDS = "rounds"

    def key(self, *of: str) -> bytes:
        return key(self.value, *of)


class Sleep(enum.StrEnum):
    ASLEEP = "asleep"
    AWAKE = "awake"


class WaitKind(enum.StrEnum):
    """What its rows are of: an answer that waits for tools, or a request whose time is to come."""

    TOOL = "tool"
    TIMER = "timer"


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of an answer that has slept, without its texts.

    until: When it is woken at the latest, or its clock decides about one of its calls.
    deadline: When its request ends in any case.
    at: The time as of which its request sees its conversation.
    slept_at, woken_at, wakes: The last time of each, and how often it was woken.
    is_stopped: It is woken to end as cancelled.
    beside: Bytes that its turn keeps beside the answer.
    size: Bytes of all its rows when it fell asleep.
    told_at, tokens_offset: When the answer was last written whole to `tokens`, and from which offset on it is there.
    epoch: Under which it fell asleep.
    """

    state: Sleep
    conversation_id: str
    until: int
    at: int
    slept_at: int
    since: int
    kind: WaitKind = WaitKind.TOOL
    tenant: str | None = None
    deadline: int | None = None
    woken_at: int = 0
    wakes: int = 0
    is_stopped: bool = False
    beside: int = 0
    size: int = 0
    told_at: int = 0
    tokens_offset: int = 0
    epoch: int = -1

    def is_due(self, now: int) -> bool:
        return self.state is Sleep.ASLEEP and self.until <= now


class KeptAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer so far, and what is left of its record. A segment never crosses the end of a round of calls, nor the
    token from which another model went on.
    """

    timestamp: int
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    plan: Plan = NO_PLAN
    segments: tuple[TokenEvent, ...] = ()

    @property
    def position(self) -> int:
        return self.segments[-1].next_index if self.segments else 0


class KeptMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turns that the answer has read. `erased_at`: the last erasure of its conversation by then."""

    turns: tuple[KeptTurn, ...] = ()
    erased_at: int = 0


class Sleeper(msgspec.Struct, frozen=True):
    """An answer that sleeps or has slept, without its rounds."""

    head: Head
    value: bytes | None
    answer: KeptAnswer
    memory: KeptMemory = KeptMemory()

    def rows(self, *key: str) -> tuple[RowChange, ...]:
        values = (encode(self.head), self.value or b"", encode(self.answer), encode(self.memory))
        parts = (Part.WAIT, Part.RECORD, Part.ANSWER, Part.MEMORY)
        return tuple(RowChange(Table.ASLEEP, part.key(*key), value) for part, value in zip(parts, values, strict=True))


def row_of(part: Part, value: Head | ToolRounds, *key: str) -> RowChange:
    return RowChange(Table.ASLEEP, part.key(*key), encode(value))


def no_rows(user_id: str, request_id: str) -> tuple[RowChange, ...]:
    """The changes that delete all of it."""
    return tuple(RowChange(Table.ASLEEP, part.key(user_id, request_id), None) for part in Part)


def heads(store: PartitionStore, *user_id: str) -> Iterator[tuple[tuple[str, str], bytes]]:
    """The keys of all answers that have slept, or of a user's, and their heads, not decoded."""
    for raw, value in store.scan(Table.ASLEEP, prefix_of(Part.WAIT.value, *user_id)):
        _, user, request_id = key_parts(raw)
        yield (user, request_id), value


def sleeper_in(store: PartitionStore, *key: str) -> Sleeper | None:
    head, answer = head_in(store, *key), _row_in(store, Part.ANSWER, KeptAnswer, *key)
    memory = _row_in(store, Part.MEMORY, KeptMemory, *key) or KeptMemory()
    if head is None or answer is None:
        return None
    return Sleeper(head, store.get(Table.ASLEEP, Part.RECORD.key(*key)), answer, memory)


def head_in(store: PartitionStore, *key: str) -> Head | None:
    return _row_in(store, Part.WAIT, Head, *key)


def rounds_in(store: PartitionStore, *key: str) -> ToolRounds | None:
    return _row_in(store, Part.ROUNDS, ToolRounds, *key)


def _row_in(store: PartitionStore, part: Part, row: type[Row], *key: str) -> Row | None:
    raw = store.get(Table.ASLEEP, part.key(*key))
    return None if raw is None else decode_row(raw, row)
