"""Who asks, and the `user_id` under which Kafka knows them.

Tenants share the topics, so the Kafka key holds the tenant too: `tenant/user`. A user without a tenant is its plain id,
or `/` and the id where that holds a slash itself. No two identities have the same key.
"""

from __future__ import annotations

from dataclasses import dataclass

SEPARATOR = "/"


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
    """Without keys there are no tenants: the user is called on Kafka as it is here."""

    @property
    def user_id(self) -> str:
        return self.user


def tenant_of(user_id: str) -> str | None:
    """The tenant of a `user_id` on Kafka; None where it has none."""
    tenant, separator, _ = user_id.partition(SEPARATOR)
    return tenant if separator and tenant else None
