"""Limits that hold across gateways: the owner of a user's partition keeps the limits of that user.

While no owner can be asked, because partitions are on the move, a request waits up to `_OWNER_WAIT_S`.
"""

from __future__ import annotations

import asyncio

from app.gateway.callers.backlog import Backlog
from app.gateway.callers.identity import Identity
from app.gateway.callers.rates import RateLimits
from app.gateway.edge.errors import ApiError
from app.gateway.peers.directory import Directory
from app.gateway.peers.link import Links, PeerAwayError
from app.wire.error import ErrorCode

_OWNER_WAIT_S = 10.0
_AGAIN_S = 0.2


class Admission:
    def __init__(self, limits: RateLimits, backlog: Backlog, directory: Directory, links: Links) -> None:
        self._limits = limits
        self._backlog = backlog
        self._directory = directory
        self._links = links

    async def admit(self, identity: Identity, requests: int, answers: int | None = None) -> None:
        """Admit that many requests of a user; raises `ApiError`.

        They get so many `answers`, as many if None: a request with candidates counts as several, and has one answer.
        """
        user_id, answers = identity.user_id, requests if answers is None else answers
        give_up_at = asyncio.get_running_loop().time() + _OWNER_WAIT_S
        while asyncio.get_running_loop().time() < give_up_at:
            if not self._directory.elsewhere(user_id):
                return self.charge(user_id, requests, answers)
            try:
                if (address := self._directory.owner(user_id)) is not None:
                    return await self._links.to(address).charge(user_id, requests, answers)
            except (PeerAwayError, TimeoutError):
                pass
            await self._directory.changed(_AGAIN_S)
        message = "the gateway that keeps the limits of this user cannot be reached"
        raise ApiError(ErrorCode.UNAVAILABLE, message, retry_after_s=1)

    def charge(self, user_id: str, requests: int, answers: int) -> None:
        """Admit requests of a user whose partition this gateway reads; raises `ApiError`."""
        self._backlog.check(user_id)
        self._limits.admit_user(user_id, requests)
        self._backlog.change(user_id, answers)

    def count_tokens(self, user_id: str, tokens: int) -> None:
        """Count generated tokens of a user whose partition this gateway reads."""
        self._limits.count_tokens(user_id, tokens)
