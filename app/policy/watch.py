"""Follow the policy file while the worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from app.policy.file import Policy, PolicyError, read_policy

log = logging.getLogger(__name__)

_EVERY_S = 1.0


class FollowsPolicy(Protocol):
    def use(self, policy: Policy) -> None:
        """Work by this policy from now on."""

    def update(self) -> None:
        """Called about once a second."""


class PolicyWatch:
    """Gives every new version of the file to the parts of the worker that work by it. A version that cannot be used is
    logged, and the one before stays in force.
    """

    def __init__(self, path: Path, policy: Policy, followers: Sequence[FollowsPolicy]) -> None:
        self._path = path
        self._policy = policy
        self._followers = followers
        self._seen: tuple[int, int, int] | None = None  # the file may have changed while the models were loaded

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            if (signature := _signature(self._path)) != self._seen:
                self._seen = signature
                self._read()
            for follower in self._followers:
                follower.update()

    def _read(self) -> None:
        try:
            policy = read_policy(self._path)
        except PolicyError as error:
            log.error("%s; the policy before stays in force", error)
            return
        if policy == self._policy:
            return
        if policy.models != self._policy.models:
            log.error(
                "policy %s: models are loaded at the start of a worker; the policy before stays in force", self._path
            )
            return
        self._policy = policy
        for follower in self._followers:
            follower.use(policy)
        log.warning("policy %s has changed and is in force", self._path)


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Of a Kubernetes ConfigMap, the file is replaced through symbolic links; its inode changes."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
