"""API keys: `KEY=user`, `KEY=tenant/user`, or `KEY=tenant/*` for a backend that names the user of each request.

Each may be one of an approver: `KEY=tenant/*#approver:DESK`, with several desks as `DESK+DESK`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from app.policy.tools import BY_USER, is_desk
from app.wire.ids import MAX_USER_LENGTH

MIN_KEY_LENGTH = 16
ANY_USER = "*"
_APPROVER = "#approver:"


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
    `desks`: those for which it decides about calls that wait for an approval, of the same tenants.
    """

    user: str | None
    tenant: str | None = None
    expires_at: float | None = None
    role: CallerRole = CallerRole.USER
    of_all: bool = False
    desks: frozenset[str] = frozenset()


def desks_mistake(desks: Sequence[object]) -> str | None:
    """Why these are no names of desks; None if they are."""
    if desks and all(isinstance(one, str) and is_desk(one) and one != BY_USER for one in desks):
        return None
    return f"names no desk; a desk is 1-64 of A-Z a-z 0-9 _ . - and not {BY_USER}"


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
    who, is_approver, names = who.partition(_APPROVER)
    desks = names.split("+") if is_approver else []
    if desks and (mistake := desks_mistake(desks)):
        raise KeysError(f"PARLEY_GATEWAY_API_KEYS: entry {number} {mistake}")
    tenant, slash, user = who.rpartition("/")
    if not who or len(who) >= MAX_USER_LENGTH or (slash and (not tenant or not user or "/" in tenant)):
        raise KeysError(f"PARLEY_GATEWAY_API_KEYS: entry {number} names no user; write KEY=user or KEY=tenant/user")
    if user == ANY_USER:
        if not tenant:
            raise KeysError(f"PARLEY_GATEWAY_API_KEYS: entry {number}: `*` needs a tenant")
        return Grant(None, tenant, desks=frozenset(desks))
    return Grant(user, tenant or None, desks=frozenset(desks))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
