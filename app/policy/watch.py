"""Follow the policy file while the worker runs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from app.policy.file import Policy, PolicyError, read_policy
from app.policy.router import Router

log = logging.getLogger(__name__)

_EVERY_S = 1.0


class PolicyWatch:
    """Gives the router every new version of the file, and lets it compare the load with its conditions. A version that
    cannot be used is logged, and the one before stays in force.
    """

    def __init__(self, path: Path, policy: Policy, router: Router) -> None:
        self._path = path
        self._policy = policy
        self._router = router
        self._seen: tuple[int, int, int] | None = None  # the file may have changed while the models were loaded

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            if (signature := _signature(self._path)) != self._seen:
                self._seen = signature
                self._read()
            self._router.update()

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
        self._router.use(policy)
        log.warning("policy %s has changed and is in force", self._path)


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Of a Kubernetes ConfigMap, the file is replaced through symbolic links; its inode changes."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
