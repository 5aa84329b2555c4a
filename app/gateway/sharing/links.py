"""The links of this gateway to the others, by address."""

from __future__ import annotations

import asyncio
from ssl import SSLContext

from app.gateway.sharing.link import Link


class Links:
    def __init__(self, secret: str, tls: SSLContext | None) -> None:
        self._secret = secret
        self._tls = tls
        self._links: dict[str, Link] = {}

    def to(self, address: str) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = Link(address, self._secret, self._tls, self._lost)
        return link

    async def keep(self, addresses: set[str]) -> None:
        """Close the links to gateways that have left."""
        gone = [self._links.pop(address) for address in set(self._links) - addresses]
        await asyncio.gather(*(link.close() for link in gone))

    async def close(self) -> None:
        await self.keep(set())

    def _lost(self, link: Link) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]
