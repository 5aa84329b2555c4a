"""The requests that this gateway has sent lately: they have an answer, or get one."""

from __future__ import annotations

import math
from collections import OrderedDict

from app.reader.rule import Key

_REMEMBERED = 10_000


class SentRequests:
    def __init__(self) -> None:
        self._conversations: OrderedDict[Key, str] = OrderedDict()
        self._new: dict[Key, float] = {}

    def add(self, key: Key, conversation_id: str, new_at: float | None) -> None:
        """`new_at`: when a request whose id was created here was sent (Unix time), None for an id of the caller's."""
        self._conversations[key] = conversation_id
        if new_at is not None:
            self._new[key] = new_at
        if len(self._conversations) > _REMEMBERED:
            self.forget(next(iter(self._conversations)))

    def conversation(self, user_id: str, request_id: str) -> str | None:
        """The conversation of a request that was sent here, whether or not it has an answer yet."""
        return self._conversations.get((user_id, request_id))

    def is_new(self, user_id: str, request_id: str, since: float) -> bool:
        """Whether this gateway created the id and sent the request after `since` (Unix time), and the answer has not
        been dropped from memory. A reader of the user's partition since then has all of the answer.
        """
        return self._new.get((user_id, request_id), -math.inf) > since

    def forget(self, key: Key) -> None:
        """The answer has left the memory; from now on it is like any other."""
        self._conversations.pop(key, None)
        self._new.pop(key, None)
