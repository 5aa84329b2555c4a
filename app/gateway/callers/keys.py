"""API keys: `KEY=user`, `KEY=tenant/user`, or `KEY=tenant/*` for a backend that names the user of each request."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum

from app.wire.ids import MAX_USER_LENGTH

MIN_KEY_LENGTH = 16
ANY_USER = "*"


class KeysError(ValueError):
    """The setting is invalid; one line that contains no key."""


class CallerRole(IntEnum):
    """What a caller may do beyond acting for itself (asking/routes/admin.py); a higher role includes the lower ones."""

    USER = 0
    AUDITOR = 1
    ADMIN = 2


@dataclass(frozen=True, slots=True)
class Grant:
    """What a key grants; `user` None means any user of the tenant. `expires_at`: Unix time, None for an API key.

    `of_all`: the role holds for all tenants; otherwise for `tenant`, or, if that is None, for users without a tenant.
    """

    user: str | None
    tenant: str | None = None
    expires_at: float | None = None
    role: CallerRole = CallerRole.USER
    of_all: bool = False


class ApiKeys:
    """Keeps and looks up digests only, so that timing reveals nothing about a key."""

    def __init__(self, setting: str) -> None:
        self._grants: dict[bytes, Grant] = {}
        for number, entry in enumerate(filter(None, (part.strip() for part in setting.split(","))), start=1):
            key, _, who = entry.partition("=")
            if len(key) < MIN_KEY_LENGTH or not who:
                raise KeysError(
                    f"PARLEY_GATEWAY_API_KEYS: entry {number} must be KEY=user, "
                    f"with a key of at least {MIN_KEY_LENGTH} characters"
                )
            grant = _grant(who, number)
            if self._grants.setdefault(_digest(key), grant) != grant:
                raise KeysError(f"PARLEY_GATEWAY_API_KEYS: entry {number} gives a key that is another user's already")

    def __bool__(self) -> bool:
        return bool(self._grants)

    def grant(self, key: str) -> Grant | None:
        return self._grants.get(_digest(key))


def _grant(who: str, number: int) -> Grant:
    tenant, slash, user = who.rpartition("/")
    if len(who) >= MAX_USER_LENGTH or (slash and (not tenant or not user or "/" in tenant)):
        raise KeysError(f"PARLEY_GATEWAY_API_KEYS: entry {number} names no user; write KEY=user or KEY=tenant/user")
    if user == ANY_USER:
        if not tenant:
            raise KeysError(f"PARLEY_GATEWAY_API_KEYS: entry {number}: `*` needs a tenant")
        return Grant(None, tenant)
    return Grant(user, tenant or None)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
