"""Records of `controls`: cancel a request, erase a user or a conversation, decide whether a call is made, note that the
time for this is over, or audit what a gateway has done.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from app.wire.ids import Name

MAX_TIME_MS = 253_402_300_799_999
"""The end of the year 9999: later times are none for calendars."""
MAX_COUNT = 2**31 - 1
MAX_BY_LENGTH = 512
MAX_REASON_LENGTH = 4096
MAX_ARGUMENTS_BYTES = 256 * 1024
"""Of the arguments that somebody has edited."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="cancel"):
    """End the answer to one request; the text so far is kept."""

    request_id: str
    user_id: str


class Erase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="erase"):
    """Delete everything of a user; requests older than this record are cancelled. With `conversation_id`, only that
    conversation.
    """

    user_id: str
    conversation_id: Name | None = None


class EraseConversation(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="erase_conversation"):
    """Delete one conversation of a user, as `erase` with a `conversation_id` does.

    Parley writes this one: a worker of an older version refuses it, and would erase the user by the other.
    """

    user_id: str
    conversation_id: Name


class Decide(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="decide"):
    """Whether a call that waits for an approval is made. The first record of a wait counts.

    decision: `edited` is approved with these `arguments`, JSON text.
    reason: Of one that is rejected; the model reads it.
    by: `DESK/NAME`, the desk as the policy names it.
    """

    request_id: str
    user_id: str
    wait_id: Name
    decision: Literal["approved", "edited", "rejected"]
    by: Annotated[str, Meta(min_length=3, max_length=MAX_BY_LENGTH)]
    arguments: str | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON_LENGTH)] | None = None


class Expire(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="expire"):
    """The time to decide about a call is over. Parley writes this one: every decision that was written in time stands
    before it. One that comes early changes nothing.
    """

    request_id: str
    user_id: str
    wait_id: Name


class Audit(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="audit"):
    """Add a link to the chain of `audit`, which only the partition's owner can extend. See `AuditRecord`."""

    user_id: str
    action: Literal["search", "denied", "admin"]
    outcome: Name
    at: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
    tenant: Name | None = None
    count: Annotated[int, Meta(ge=1, le=MAX_COUNT)] = 1


Control = Cancel | Erase | EraseConversation | Decide | Expire | Audit


def erase(user_id: str, conversation_id: str | None = None) -> Erase | EraseConversation:
    """The record that erases a conversation, or everything of the user if none is named."""
    if conversation_id is None:
        return Erase(user_id=user_id)
    return EraseConversation(user_id=user_id, conversation_id=conversation_id)
