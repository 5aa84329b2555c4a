"""Records of `controls`: cancel a request, erase a user, or audit what a gateway has done."""

from __future__ import annotations

from typing import Literal

import msgspec


class Cancel(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="cancel"):
    """End the answer to one request; the text so far is kept."""

    request_id: str
    user_id: str


class Erase(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="erase"):
    """Delete everything of a user; requests older than this record are cancelled."""

    user_id: str


class Audit(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="audit"):
    """Add a link to the chain of `audit`, which only the partition's owner can extend. See `AuditRecord`."""

    user_id: str
    action: Literal["search", "denied", "admin"]
    outcome: str
    at: int
    tenant: str | None = None
    count: int = 1


Control = Cancel | Erase | Audit
