"""The caller's identity, and the `user_id` that it has in Kafka.

Tenants share the topics, so the Kafka key contains the tenant: `tenant/user`. A user without a tenant has its plain id,
or `/` and the id if that contains a slash. No two identities have the same key.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.wire.ids import SEPARATOR


@dataclass(frozen=True, slots=True)
class Identity:
    user: str
    tenant: str | None = None

    @property
    def user_id(self) -> str:
        if self.tenant is not None:
            return f"{self.tenant}{SEPARATOR}{self.user}"
        return f"{SEPARATOR}{self.user}" if SEPARATOR in self.user else self.user


@dataclass(frozen=True, slots=True)
class DevelopmentIdentity(Identity):
    """Without keys there are no tenants: the user's id in Kafka is the same as here."""

    @property
    def user_id(self) -> str:
        return self.user
