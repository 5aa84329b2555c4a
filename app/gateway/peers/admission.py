"""Limits that hold across gateways: the owner of the partition of a user's or a tenant's name keeps its limits.

While no owner can be asked, because partitions are on the move, a request waits up to `_OWNER_WAIT_S`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from app.gateway.callers.backlog import Backlog
from app.gateway.callers.identity import Identity
from app.gateway.callers.rates import RateLimits
from app.gateway.edge.errors import ApiError, lasting
from app.gateway.peers.directory import Directory
from app.gateway.peers.link import Links, PeerAwayError
from app.wire.error import ErrorCode
from app.wire.ids import tenant_of

_OWNER_WAIT_S = 10.0
_AGAIN_S = 0.2
_SPEND_EVERY_S = 1.0


class Admission:
    def __init__(self, limits: RateLimits, backlog: Backlog, directory: Directory, links: Links) -> None:
        self._limits = limits
        self._backlog = backlog
        self._directory = directory
        self._links = links
        self._elsewhere: Counter[str] = Counter()  # tokens of tenants whose limits another gateway keeps
        self._spending: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._directory.is_shared and self._limits.limits_tenants:
            self._spending = asyncio.create_task(
                lasting("counting tokens", self._keep_spending), name="tokens of tenants"
            )

    async def stop(self) -> None:
        if self._spending is not None:
            self._spending.cancel()
            await asyncio.gather(self._spending, return_exceptions=True)

    async def admit(self, identity: Identity, requests: int, answers: int | None = None) -> None:
        """Admit that many requests of a user and its tenant; raises `ApiError`.

        They get so many `answers`, as many if None: a request with candidates counts as several, and has one answer.
        """
        answers = requests if answers is None else answers
        await self._ask(identity.user_id, requests, answers, is_tenant=False)
        if identity.tenant is None or not self._limits.limits_tenants:
            return
        try:
            await self._ask(identity.tenant, requests, answers, is_tenant=True)
        except ApiError:
            self._return(identity.user_id, requests)
            raise

    def count_tokens(self, user_id: str, tokens: int) -> None:
        """Count generated tokens of a user whose partition this gateway reads."""
        self._limits.count_tokens(user_id, tokens)
        tenant = tenant_of(user_id)
        if tenant is None or not tokens or not self._limits.limits_tenants:
            return
        if self._directory.elsewhere(tenant):
            self._elsewhere[tenant] += tokens
        else:
            self._limits.count_tenant_tokens(tenant, tokens)

    def charge(self, name: str, requests: int, answers: int, *, is_tenant: bool) -> None:
        """Admit requests by the limits that this gateway keeps; raises `ApiError`."""
        if is_tenant:
            self._limits.admit_tenant(name, requests)
        else:
            self._backlog.check(name)
            self._limits.admit_user(name, requests)
            self._backlog.change(name, answers)

    def give_back(self, name: str, requests: int) -> None:
        """Requests of a user that were charged here were not sent after all."""
        self._limits.give_back(name, requests)
        self._backlog.change(name, -requests)

    def spend(self, tenant: str, tokens: int) -> None:
        """Count tokens that another gateway has read."""
        self._limits.count_tenant_tokens(tenant, tokens)

    async def _ask(self, name: str, requests: int, answers: int, *, is_tenant: bool) -> None:
        give_up_at = asyncio.get_running_loop().time() + _OWNER_WAIT_S
        while asyncio.get_running_loop().time() < give_up_at:
            if not self._directory.elsewhere(name):
                return self.charge(name, requests, answers, is_tenant=is_tenant)
            try:
                if (address := self._directory.owner(name)) is not None:
                    return await self._links.to(address).charge(name, requests, answers, is_tenant=is_tenant)
            except (PeerAwayError, TimeoutError):
                pass
            await self._directory.changed(_AGAIN_S)
        message = "the gateway that keeps the limits of this user cannot be reached"
        raise ApiError(ErrorCode.UNAVAILABLE, message, retry_after_s=1)

    def _return(self, name: str, requests: int) -> None:
        """If the owner is away just now, the user's next minute has fewer requests."""
        if not self._directory.elsewhere(name):
            self.give_back(name, requests)
        elif (owner := self._directory.owner(name)) is not None:
            with suppress(PeerAwayError):
                self._links.to(owner).give_back(name, requests)

    async def _keep_spending(self) -> None:
        while True:
            await asyncio.sleep(_SPEND_EVERY_S)
            spent, self._elsewhere = self._elsewhere, Counter()
            of_owner: dict[str, dict[str, int]] = {}
            for tenant, tokens in spent.items():
                if not self._directory.elsewhere(tenant):
                    self.spend(tenant, tokens)
                elif (address := self._directory.owner(tenant)) is not None:
                    of_owner.setdefault(address, {})[tenant] = tokens
            for address, tokens_of in of_owner.items():
                try:
                    self._links.to(address).spend(tokens_of)
                except PeerAwayError:
                    self._elsewhere.update(tokens_of)  # with the next frame
