"""Follow the policy file while a worker or a gateway runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from app.policy.file import Policy, PolicyError, read_policy

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_SETTLED_S = 0.2
"""How old a version of the file has to be. A program that writes it in place truncates it first, and an empty policy is
a valid one.
"""


class FollowsPolicy(Protocol):
    """A part of a process that works by the policy."""

    def use(self, policy: Policy) -> None:
        """Work by this policy from now on."""


class PolicyWatch:
    """Gives every new version of the file to the parts of the process that work by it. A version that cannot be used is
    logged, and the one before stays in force. `change_models` and `change_guard` raise `PolicyError`; the functions of
    `each_second` are called about once a second.
    """

    def __init__(
        self,
        path: Path,
        policy: Policy,
        followers: Sequence[FollowsPolicy],
        change_models: Callable[[Policy], Awaitable[None]] | None = None,
        each_second: Sequence[Callable[[], None]] = (),
        change_guard: Callable[[Policy], Awaitable[None]] | None = None,
    ) -> None:
        self._path = path
        self._policy = policy
        self._followers = followers
        self._change_models = change_models
        self._each_second = each_second
        self._change_guard = change_guard
        self._changing: asyncio.Task[None] | None = None
        self._seen: tuple[int, int, int] | None = None  # the file may have changed while the models were loaded

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                is_busy = self._changing is not None and not self._changing.done()
                if not is_busy and (signature := _signature(self._path)) != self._seen and _has_settled(signature):
                    self._seen = signature
                    self._changing = asyncio.create_task(self._read(), name="policy-change")
                for update in self._each_second:
                    update()
        finally:
            if self._changing is not None:
                self._changing.cancel()

    async def _read(self) -> None:
        try:
            policy = read_policy(self._path)
            if policy == self._policy:
                return
            if self._change_models is not None and _models_of(policy) != _models_of(self._policy):
                await self._change_models(policy)
            if self._change_guard is not None and policy.guard != self._policy.guard:
                await self._change_guard(policy)
        except PolicyError as error:
            log.error("%s; the policy before stays in force", error)
            return
        self._policy = policy
        for follower in self._followers:
            follower.use(policy)
        log.warning("policy %s has changed and is in force", self._path)


def _models_of(policy: Policy) -> tuple[object, ...]:
    """What models are loaded by; outside models of the chain wait less for their servers."""
    return policy.models, policy.fallback.chain


def _has_settled(signature: tuple[int, int, int] | None) -> bool:
    """A time of modification in the future comes from another clock."""
    return signature is None or not 0 <= time.time_ns() - signature[0] < _SETTLED_S * 1e9


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Of a Kubernetes ConfigMap, the file is replaced through symbolic links; its inode changes."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
