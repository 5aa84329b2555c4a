"""Versions of a turn: an edit, or another answer, begins a conversation of its own as a copy (`from`), and names what
it replaces. Its name is that of the first one, `~` and eight digits, and its request's id says in whose place it
stands: so the chat page shows it among the versions of that turn.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, Literal

from parley_client.transport import Record, Transport, new_request_id

_MARK = re.compile(r"~[0-9a-f]{8}$")
_TAIL = re.compile(r"[A-Za-z0-9:_-]{1,12}")
_MOST_REPLACED = 100
_LETTERS = {"again": "r", "edit": "e"}


def root_of(conversation: str) -> str:
    """The first one of all versions of a conversation."""
    return _MARK.sub("", conversation)


def fork_of(conversation: str) -> str:
    return f"{root_of(conversation)}~{os.urandom(4).hex()}"


def version_id(kind: Literal["again", "edit"], of: str) -> str:
    """An id for a request in the place of the one with the id `of`."""
    tail = of.partition(".")[0][-12:]
    return f"{new_request_id()}.{_LETTERS[kind]}-{tail}" if _TAIL.fullmatch(tail) else new_request_id()


async def replaced_with(transport: Transport, conversation: str, request_id: str) -> list[str]:
    """The request and those behind it in its conversation, as far as they are known."""
    ids = [turn["request_id"] for turn in await transport.turns(conversation)]
    later = ids[ids.index(request_id) + 1 :] if request_id in ids else []
    return [request_id, *later][:_MOST_REPLACED]


async def versions_of(transport: Transport, conversation: str, request_id: str) -> list[Record]:
    root = root_of(conversation)
    names = [root, *(one for one in await transport.conversations() if one != root and root_of(one) == root)]
    turns = [{"conversation_id": name, **turn} for name in names for turn in await transport.turns(name)]
    return _in_one_place(turns, request_id)


def _in_one_place(turns: Sequence[dict[str, Any]], request_id: str) -> list[Record]:
    """A version names first in whose place it stands."""
    before = {turn["request_id"]: turn["replaces"][0] for turn in turns if turn.get("replaces")}

    def place(one: str) -> str:
        seen = set()
        while one in before and one not in seen:
            seen.add(one)
            one = before[one]
        return one

    found = [turn for turn in turns if place(turn["request_id"]) == place(request_id)]
    return sorted(found, key=lambda turn: int(turn["created_at"]))
