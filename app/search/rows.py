"""A turn as rows of the collection: one for the user's text, one for the answer.

The primary key is made of the user and the request, so writing a turn again, after a crash or a replay of the topic,
writes the same rows.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from app.wire.turn import Turn

MAX_TEXT_BYTES = 65535
"""The longest VARCHAR of Milvus; its limits count bytes."""
MAX_NAME_BYTES = 1024
"""A user id has at most 128 characters and a conversation id 256, of up to four bytes each."""
MAX_KEY_BYTES = 1024


class TurnSide(enum.StrEnum):
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class IndexRow:
    """A row without its vector; the names are the collection's fields. `replaces`: requests whose turns are not found
    as long as this row is there.
    """

    turn_id: str
    text: str
    user_id: str
    conversation_id: str
    tenant: str
    role: str
    model_version: str
    created_at: int
    asked_at: int
    replaces: tuple[str, ...] = ()


def rows_of(turn: Turn) -> list[IndexRow]:
    """One row for each non-empty side: an empty text has no vector."""
    texts = {TurnSide.USER: turn.prompt, TurnSide.ASSISTANT: turn.answer}
    return [
        IndexRow(
            turn_id=turn_id(turn.user_id, turn.request_id, role),
            text=cut(text, MAX_TEXT_BYTES),
            user_id=turn.user_id,
            conversation_id=turn.conversation_id,
            tenant=turn.tenant or "",
            role=role.value,
            model_version=turn.model_version,
            created_at=turn.created_at,
            asked_at=turn.asked_at,
            replaces=turn.hides,
        )
        for role, text in texts.items()
        if text
    ]


def turn_id(user_id: str, request_id: str, role: TurnSide) -> str:
    return f"{user_id}/{request_id}:{role.value}"


def request_id_of(key: str) -> str:
    """The request in a primary key. A user id may contain `/`, a request id may not; it may contain `:`, a role may
    not.
    """
    return key.rpartition("/")[2].rpartition(":")[0]


def cut(text: str, most: int) -> str:
    """The longest prefix of at most `most` bytes of UTF-8 that ends with a whole character."""
    encoded = text.encode("utf-8", "replace")
    return encoded[:most].decode("utf-8", "ignore")
