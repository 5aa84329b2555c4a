"""The erasure marks of one ownership: those of the table, and those whose commit is under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.process.user_locks import UserLocks
from tables.erasures import Marks, Scope, mark_of, marks_within
from tables.records import Erased
from tables.store import PartitionStore


class PartitionMarks:
    """A mark counts from the moment at which it is decided.

    locks: Of a user, held from the read of a mark until what follows from it is committed: otherwise the end of a slow
        erasure can replace the mark of a newer one whose commit is under way.
    """

    def __init__(self, store: PartitionStore) -> None:
        self.locks = UserLocks()
        self._store = store
        self._deciding: dict[Scope, Erased] = {}

    def of(self, user_id: str, conversation_id: str) -> Marks:
        """The marks that are about this conversation. Whatever reads or keeps something of it asks them."""
        found = map(self._newest, (Scope(user_id), Scope(user_id, conversation_id)))
        return Marks(tuple(mark for mark in found if mark is not None))

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

    def _newest(self, scope: Scope) -> Erased | None:
        return self._deciding.get(scope) or mark_of(self._store, scope)
