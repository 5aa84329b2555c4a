"""The messages of a WebSocket client."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from app.gateway.ask_body import AskBody
from app.gateway.body import parse
from app.gateway.errors import ApiError
from app.wire.error import ErrorCode
from app.wire.limits import is_request_id

_LARGEST_INDEX = 2**53


class AskMessage(AskBody, frozen=True, kw_only=True, tag_field="type", tag="ask"):
    ref: str | None = None


class _About(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message about an existing request."""

    request_id: str
    ref: str | None = None
    user_id: str | None = None


class FollowMessage(_About, frozen=True, kw_only=True, tag="follow"):
    starting_after: int = 0


class UnfollowMessage(_About, frozen=True, kw_only=True, tag="unfollow"):
    pass


class CancelMessage(_About, frozen=True, kw_only=True, tag="cancel"):
    pass


Message: TypeAlias = AskMessage | FollowMessage | UnfollowMessage | CancelMessage


def decode(raw: str | bytes) -> tuple[Message, list[str]]:
    """The message, and the names of its fields that have no effect; raises `ApiError`."""
    message, ignored = parse(raw, Message)
    if isinstance(message, AskMessage):
        return message, ignored
    if not is_request_id(message.request_id):
        raise _wrong("request_id: must be 1-64 of A-Z a-z 0-9 . _ : -", "request_id")
    if isinstance(message, FollowMessage) and not 0 <= message.starting_after <= _LARGEST_INDEX:
        raise _wrong("starting_after: must be the position after an event", "starting_after")
    return message, ignored


def _wrong(message: str, param: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message, param=param)
