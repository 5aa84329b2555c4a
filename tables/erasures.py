"""What is erased: marks in the table, and the rows that a mark hides until they are deleted.

An erasure is of a user, or of one conversation of a user. Each has a mark of its own, and what belongs to a
conversation is erased by either: whoever reads, keeps or serves something of a user asks both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat

from app.process.user_locks import UserLocks
from tables.records import (
    Activity,
    Conversation,
    Erased,
    RowChange,
    Table,
    decode_row,
    encode,
    key,
    key_parts,
    prefix_of,
)
from tables.store import PartitionStore
from tables.tool_calls import ToolRounds

_BYTES_OF_ROW = 4096
_MOST_KNOWN = 256
_OF_CONVERSATION = ""
"""First in the key of a conversation's mark. A worker that knows users' marks only takes it for the user, of which
there is none with this name, and so erases nothing.
"""


@dataclass(frozen=True, slots=True)
class Scope:
    """What an erasure is about: everything of a user, or one conversation."""

    user_id: str
    conversation_id: str | None = None

    @classmethod
    def of_key(cls, raw: bytes) -> Scope:
        """The scope of a mark's key; raises `ValueError`."""
        match key_parts(raw):
            case (user_id,):
                return cls(user_id)
            case (first, user_id, conversation_id) if first == _OF_CONVERSATION:
                return cls(user_id, conversation_id)
        raise ValueError("the key of no mark")

    @property
    def key(self) -> bytes:
        conversation = self.conversation_id
        return encode((self.user_id,) if conversation is None else (_OF_CONVERSATION, self.user_id, conversation))

    def includes(self, user_id: str, conversation_id: str) -> bool:
        return user_id == self.user_id and self.conversation_id in {None, conversation_id}


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks that are about one conversation: its user's and its own, as far as there are any."""

    marks: tuple[Erased, ...] = ()

    @property
    def at(self) -> int:
        """The time of the last erasure, Unix milliseconds; 0 for none."""
        return max((mark.at for mark in self.marks), default=0)

    def hide(self, row: Conversation | Activity) -> bool:
        """Whether the row is older than an erasure that has not deleted it yet."""
        return any(mark.hides(row) for mark in self.marks)

    def cover(self, asked_at: int) -> bool:
        """Whether what was asked at this time is erased."""
        return any(asked_at <= mark.at for mark in self.marks)

    def forbid(self, asked_at: int, begun_at: int | None) -> bool:
        """Whether nothing may be kept of a request of the time `asked_at`, whose first token another owner has written
        `begun_at`: that owner may have read the conversation before the mark, and written behind it.
        """
        may_quote = begun_at is not None and any(min(asked_at, begun_at) <= mark.applied for mark in self.marks)
        return may_quote or self.cover(asked_at)


@dataclass(slots=True)
class ErasedUntil:
    """When users and conversations were last erased, Unix milliseconds: the marks of all partitions, for processes that
    own none.
    """

    _at: dict[Scope, int] = field(default_factory=dict)

    def add(self, scope: Scope, at: int) -> bool:
        """Note an erasure; False if a later one is known."""
        if at <= self._at.get(scope, 0):
            return False
        self._at[scope] = at
        return True

    def forget(self, scope: Scope) -> None:
        """Its mark has expired."""
        self._at.pop(scope, None)

    def of(self, scope: Scope) -> int:
        """The last erasure of exactly that; 0 for none."""
        return self._at.get(scope, 0)

    def at(self, user_id: str, conversation_id: str) -> int:
        """The last erasure of the user or of this conversation; 0 for none."""
        return max(self.of(Scope(user_id)), self.of(Scope(user_id, conversation_id)))

    def all(self) -> Mapping[Scope, int]:
        return self._at


def mark_of(store: PartitionStore, scope: Scope) -> Erased | None:
    """The mark of the last erasure of exactly that, None if the partition has none."""
    raw = store.get(Table.ERASED, scope.key)
    return None if raw is None else decode_row(raw, Erased)


def marks_within(store: PartitionStore, user_id: str) -> Iterator[tuple[str, Erased]]:
    """The user's conversations that have a mark."""
    for raw, value in store.scan(Table.ERASED, prefix_of(_OF_CONVERSATION, user_id)):
        yield key_parts(raw)[-1], decode_row(value, Erased)


def has_marks(store: PartitionStore, user_id: str) -> bool:
    """Whether anything of the user was erased."""
    return mark_of(store, Scope(user_id)) is not None or next(marks_within(store, user_id), None) is not None


class PartitionMarks:
    """Those of one ownership: of the table, and those whose commit is under way. A mark counts from the moment at which
    it is decided.

    locks: Of a user, held from the read of a mark until what follows from it is committed: otherwise the end of a slow
        erasure can replace the mark of a newer one whose commit is under way.
    """

    def __init__(self, store: PartitionStore) -> None:
        self.locks = UserLocks()
        self._store = store
        self._deciding: dict[Scope, Erased] = {}
        self._known, self._known_at = dict[tuple[str, str], Marks](), store.marks_written

    def of(self, user_id: str, conversation_id: str) -> Marks:
        """Those about this conversation. Whatever reads or keeps something of it asks here: they are read once."""
        if self._deciding or self._known_at != self._store.marks_written or len(self._known) >= _MOST_KNOWN:
            self._known, self._known_at = {}, self._store.marks_written
        if (marks := self._known.get((user_id, conversation_id))) is None:
            both = self._newest(Scope(user_id)), self._newest(Scope(user_id, conversation_id))
            marks = self._known[user_id, conversation_id] = Marks(tuple(filter(None, both)))
        return marks

    def erased_at(self, user_id: str) -> int:
        """When everything of the user was last erased, Unix milliseconds; 0 for never."""
        mark = self._newest(Scope(user_id))
        return 0 if mark is None else mark.at

    def being_erased(self, user_id: str) -> dict[str, int]:
        """The user's conversations of which an erasure has not deleted everything, and its time."""
        marks = dict(marks_within(self._store, user_id))
        for scope, mark in self._deciding.items():
            if scope.user_id == user_id and scope.conversation_id is not None:
                marks[scope.conversation_id] = mark
        return {name: mark.at for name, mark in marks.items() if not mark.done}

    @contextmanager
    def deciding(self, scope: Scope, mark: Erased) -> Iterator[None]:
        """While the mark is committed."""
        self._deciding[scope] = mark
        yield
        if self._deciding.get(scope) is mark:
            del self._deciding[scope]
            self._known.clear()

    def _newest(self, scope: Scope) -> Erased | None:
        return self._deciding.get(scope) or mark_of(self._store, scope)


def erasure(store: PartitionStore, scope: Scope, mark: Erased) -> Iterator[RowChange | None]:
    """Yield a deletion for each conversation that `mark` hides, and for the calls of requests up to its time; None for
    each row that stays, as `tombstones` does.

    Ended request ids stay until their own expiry. They hold no text, and without them a replayed request would be
    answered again.
    """

    def old(table: Table, value: bytes) -> bool:
        if table is Table.CONVERSATIONS:
            return mark.hides(decode_row(value, Activity))
        rounds = decode_row(value, ToolRounds)
        return rounds.at <= mark.at and scope.includes(scope.user_id, rounds.conversation_id)

    calls = prefix_of(scope.user_id)
    conversations = calls if scope.conversation_id is None else key(scope.user_id, scope.conversation_id)
    for table, prefix in ((Table.CONVERSATIONS, conversations), (Table.CALLS, calls)):
        for raw, value in store.scan(table, prefix):
            yield from pauses(value)
            now = store.get(table, raw) if old(table, value) else None
            yield RowChange(table, raw, None) if now is not None and old(table, now) else None


def copies_of(store: PartitionStore, scope: Scope, at: int) -> Iterator[str | None]:
    """The user's conversations that copied this one before its erasure `at` was known; None for each other row."""
    for raw, value in store.scan(Table.CONVERSATIONS, prefix_of(scope.user_id)):
        yield from pauses(value)
        origin = decode_row(value, Activity).origin
        yield key_parts(raw)[-1] if origin and origin.erased.get(scope.conversation_id or "", at) < at else None


def has_rows(store: PartitionStore, user_id: str) -> bool:
    """Whether the partition has anything of the user but marks."""
    places = [(table, prefix_of(user_id)) for table in (Table.CONVERSATIONS, Table.CALLS, Table.ENDED)]
    return any(next(store.scan(*one), None) for one in (*places, (Table.ASLEEP, prefix_of("wait", user_id))))


def pauses(value: bytes) -> Iterator[None]:
    """A long row counts as several, because reading it takes as long."""
    return repeat(None, len(value) // _BYTES_OF_ROW)
