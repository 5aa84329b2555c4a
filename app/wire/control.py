"""Records of `controls`: cancel a request, or erase a user."""

from __future__ import annotations

import msgspec


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="cancel"):
    """End the answer to one request; the text so far is kept."""

    request_id: str
    user_id: str


class Erase(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="erase"):
    """Delete everything of a user; requests older than this record are cancelled."""

    user_id: str


Control = Cancel | Erase
