"""The home of a tenant: the deployment that serves it. Others refuse its requests, before they read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parley_client.plugins import Feature, Refused, Sender


class Homes(Feature):
    """Its settings are `homes`, the parts of the home of each tenant (`region`, `group`), and `here`, those of this
    deployment. "*" is everybody else.
    """

    blocks = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._here: dict[str, str] = dict(settings.get("here", {}))
        self._homes: dict[str, dict[str, str]] = dict(settings.get("homes", {}))

    async def admit(self, sender: Sender) -> None:
        if (why := self.refusal(sender.tenant or "")) is not None:
            raise Refused(why)

    def refusal(self, tenant: str) -> str | None:
        """Why this deployment must not touch requests of the tenant."""
        for name, home in self._homes.get(tenant, self._homes.get("*", {})).items():
            if home != (here := self._here.get(name, "")):
                return f"tenant: its {name} is {home!r}, and this service has {here!r}; send the request there"
        return None
