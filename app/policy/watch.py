"""Follow the policy file while a worker or a gateway runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from app.policy.check import read_policy
from app.policy.file import Policy, PolicyError
from app.settings import Settings

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_STABLE_S = 0.2
"""How old a version of the file has to be. A program that writes it in place truncates it first, and an empty policy is
a valid one.
"""


class FollowsPolicy(Protocol):
    """A part of a process that works by the policy."""

    def use(self, policy: Policy) -> None:
        """Work by this policy from now on."""


class PolicyChange(Protocol):
    """What a part has loaded for a policy, and does not use yet."""

    def apply(self) -> None:
        """Work by it from now on. Cannot fail, and does not wait."""

    async def drop(self) -> None:
        """Free what was loaded."""


class LoadsPolicy(Protocol):
    """A part of a process that has to load something before it can work by a policy."""

    async def prepare(self, policy: Policy) -> PolicyChange | None:
        """Load what the policy needs beside what is loaded; None if that is nothing. Raises `PolicyError`, and keeps
        nothing then.
        """


class PolicyWatch:
    """Brings every new version of the file into force, in two phases:

    1. `loads`: models, the guard's pipelines and judges. Requests are still answered by the policy before.
    2. All parts and all `followers` change in one step of the event loop, so no request sees half a change.

    A version that cannot be loaded is logged, and all of it is dropped: the policy before and its models stay in force.
    So is a version that the file no longer holds once it is loaded. The functions of `each_second` are called about
    once a second.
    """

    def __init__(
        self,
        settings: Settings,
        policy: Policy,
        followers: Sequence[FollowsPolicy],
        loads: Sequence[LoadsPolicy] = (),
        each_second: Sequence[Callable[[], None]] = (),
    ) -> None:
        assert settings.policy is not None, "there is a file to watch"
        self._settings, self._path = settings, settings.policy
        self._policy = policy
        self._followers = followers
        self._loads = loads
        self._each_second = each_second
        self._changing: asyncio.Task[None] | None = None
        self._last_read: tuple[int, int, int] | None = None  # the file may have changed while the models were loaded

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(_EVERY_S)
                is_busy = self._changing is not None and not self._changing.done()
                if not is_busy and (signature := _signature(self._path)) != self._last_read and _is_stable(signature):
                    self._last_read = signature
                    self._changing = asyncio.create_task(self._change(), name="policy-change")
                for update in self._each_second:
                    update()
        finally:
            if self._changing is not None:
                self._changing.cancel()
                await asyncio.gather(self._changing, return_exceptions=True)

    async def _change(self) -> None:
        changes: list[PolicyChange] = []
        try:
            policy = read_policy(self._settings)
            if policy == self._policy:
                return
            for part in self._loads:
                change = await part.prepare(policy)
                changes += [] if change is None else [change]
        except BaseException as error:
            for change in changes:
                await change.drop()
            if not isinstance(error, Exception):
                raise
            _log_refused(error)
            return
        if self._is_superseded(policy):
            for change in changes:
                await change.drop()
            log.warning("policy %s has changed again before this version was loaded: it is dropped", self._path)
            return
        self._policy = policy
        for change in changes:
            change.apply()
        for follower in self._followers:
            follower.use(policy)
        log.warning("policy %s has changed and is in force", self._path)

    def _is_superseded(self, policy: Policy) -> bool:
        """Whether the file holds another policy by now, which `run` reads next."""
        if _signature(self._path) == self._last_read:
            return False
        try:
            return read_policy(self._settings) != policy
        except PolicyError:
            return True


def _log_refused(error: Exception) -> None:
    if isinstance(error, PolicyError):
        log.error("%s; the policy before stays in force", error)
    else:
        log.error("policy: it cannot be loaded; the policy before stays in force", exc_info=error)


def _is_stable(signature: tuple[int, int, int] | None) -> bool:
    """A time of modification in the future comes from another clock."""
    return signature is None or not 0 <= time.time_ns() - signature[0] < _STABLE_S * 1e9


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Of a Kubernetes ConfigMap, the file is replaced through symbolic links; its inode changes."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
