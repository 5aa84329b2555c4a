"""The links of this gateway to the others, by name.

A link that failed is made again by the next call, but not at once: a gateway that is away, or that refuses this one, is
tried less and less often, up to every `_LONGEST_S`. The first failure is logged, and the first success after it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from ssl import SSLContext

from app.gateway.metrics import Metrics
from app.gateway.sharing.link import Link, PeerAwayError
from app.gateway.sharing.trust import Trust

log = logging.getLogger(__name__)

_SHORTEST_S = 0.2
_LONGEST_S = 2.0


@dataclass(frozen=True, slots=True)
class _Failure:
    """`until`: when the next link may be made, in the loop's time."""

    until: float
    delay_s: float
    is_refusal: bool


class Links:
    def __init__(self, trust: Trust, tls: SSLContext | None, metrics: Metrics) -> None:
        self._trust = trust
        self._tls = tls
        self._metrics = metrics
        self._addresses: dict[str, str] = {}
        self._links: dict[str, Link] = {}
        self._failures: dict[str, _Failure] = {}

    @property
    def refused(self) -> bool:
        """Whether every other gateway refuses this one, or is refused by it."""
        failures = [self._failures.get(name) for name in self._addresses]
        return bool(failures) and all(one is not None and one.is_refusal for one in failures)

    def to(self, name: str) -> Link:
        """Raises `PeerAwayError` while it is too early to try again."""
        if (link := self._links.get(name)) is not None:
            return link
        failure = self._failures.get(name)
        address = self._addresses.get(name)
        if address is None or (failure is not None and asyncio.get_running_loop().time() < failure.until):
            raise PeerAwayError(f"the gateway at {name} is away")
        link = self._links[name] = Link(name, address, self._trust, self._tls, self)
        return link

    async def keep(self, addresses: Mapping[str, str]) -> None:
        """Link to these gateways, by name, at the addresses of their ports; close the links to those that left."""
        gone = [self._links.pop(name) for name in self._links.keys() - addresses.keys()]
        moved = [self._links.pop(name) for name, link in list(self._links.items()) if link.address != addresses[name]]
        self._addresses = dict(addresses)
        self._failures = {name: one for name, one in self._failures.items() if name in addresses}
        await asyncio.gather(*(link.close() for link in (*gone, *moved)))
        for name in self._addresses.keys() - self._failures.keys():
            self.to(name)

    async def close(self) -> None:
        await self.keep({})

    def succeeded(self, link: Link) -> None:
        """Both ends of the link have proved that they have the secret."""
        if self._failures.pop(link.name, None) is not None:
            log.warning("the gateway at %s is linked again", link.name)

    def failed(self, link: Link, error: BaseException, *, is_refusal: bool) -> None:
        """The link has ended by itself; calls that need it are told to try again."""
        if self._links.get(link.name) is not link:
            return  # this gateway has closed it
        del self._links[link.name]
        before = self._failures.get(link.name)
        if is_refusal:
            self._metrics.refused_links.labels("asking").inc()
        if before is None or before.is_refusal is not is_refusal:
            self._log(link, error, is_refusal=is_refusal)
        delay_s = _SHORTEST_S if before is None else min(2 * before.delay_s, _LONGEST_S)
        until = asyncio.get_running_loop().time() + delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
        self._failures[link.name] = _Failure(until, delay_s, is_refusal)

    def _log(self, link: Link, error: BaseException, *, is_refusal: bool) -> None:
        if is_refusal:
            log.error(
                "the gateway at %s is refused: %s; compare PARLEY_GATEWAY_PEER_SECRET, and who may join the group of "
                "gateways in Kafka",
                link.name,
                error,
            )
        else:
            log.warning("the gateway at %s is away: %s", link.name, error)
