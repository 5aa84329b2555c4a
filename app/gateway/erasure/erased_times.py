"""When users and conversations were erased, as a gateway remembers it: for days, of all users.

A name of a conversation may take a kilobyte, and a user may delete a thousand of them a day. So their digests are kept:
some 200 bytes for each. Two names with one digest of 128 bits would be erased together.
"""

from __future__ import annotations

from hashlib import blake2b

from tables.erasures import Scope

_DIGEST_BYTES = 16


class ErasedTimes:
    """Unix milliseconds; of the partitions' marks, the latest counts."""

    def __init__(self) -> None:
        self._users: dict[str, int] = {}
        self._conversations: dict[str, dict[bytes, int]] = {}

    def add(self, scope: Scope, at: int) -> bool:
        """Note an erasure; False if a later one is known."""
        if at <= self.of(scope):
            return False
        if scope.conversation_id is None:
            self._users[scope.user_id] = at
        else:
            self._conversations.setdefault(scope.user_id, {})[_digest(scope.conversation_id)] = at
        return True

    def forget(self, scope: Scope) -> None:
        """Its mark has expired."""
        if scope.conversation_id is None:
            self._users.pop(scope.user_id, None)
        elif (times := self._conversations.get(scope.user_id)) is not None:
            times.pop(_digest(scope.conversation_id), None)
            if not times:
                del self._conversations[scope.user_id]

    def of(self, scope: Scope) -> int:
        """The last erasure of exactly that; 0 for none."""
        if scope.conversation_id is None:
            return self._users.get(scope.user_id, 0)
        times = self._conversations.get(scope.user_id)
        return 0 if times is None else times.get(_digest(scope.conversation_id), 0)

    def at(self, user_id: str, conversation_id: str) -> int:
        """The last erasure of the user or of this conversation; 0 for none."""
        return max(self._users.get(user_id, 0), self.of(Scope(user_id, conversation_id)))


def _digest(name: str) -> bytes:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
