"""Which models keep failing, and are left out for a while.

    HEALTHY --`failures` within `window_s`--> OUT --after `retry_s`--> PROBED --an answer begins--> HEALTHY
                                               ^--------- a failure -----'

A model that is out gets one request after `retry_s`, the probe; the others still go to the next model of the chain.

A model may fail because of one caller's prompts. So failures of one user leave it out for that user alone, failures of
two users of a tenant for the tenant, and failures of two tenants for everybody; a user without a tenant counts as a
tenant. A lone user is spared a model that is down as soon as a crowd is.
"""

from __future__ import annotations

import enum
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from app.policy.file import Fallback
from app.wire.ids import tenant_of

log = logging.getLogger(__name__)

_FEWEST = 2
Scope = tuple[str, ...]
"""All, a tenant, or a tenant's user."""
_WHOM = ("", " for a tenant", " for a user")


class HealthState(enum.Enum):
    HEALTHY = "healthy"
    OUT = "out"
    PROBED = "probed"


@dataclass(slots=True)
class _Verdict:
    state: HealthState
    since: float


@dataclass(slots=True)
class _Health:
    failures: deque[tuple[float, Scope]] = field(default_factory=deque)
    verdicts: dict[Scope, _Verdict] = field(default_factory=dict)


class ModelHealth:
    """By the names of models. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[str, _Health] = {}

    def admits(self, model: str, fallback: Fallback, user_id: str) -> bool:
        """Whether the model gets the user's next request; the probe of a model that is out counts as begun."""
        health = self._of.get(model)
        if health is None:
            return True
        verdicts = [health.verdicts[scope] for scope in _scopes(user_id) if scope in health.verdicts]
        # A probe that never ended must not leave the model out for ever.
        if any(self._clock() - verdict.since < fallback.retry_s for verdict in verdicts):
            return False
        for verdict in verdicts:
            verdict.state, verdict.since = HealthState.PROBED, self._clock()
        return True

    def failed(self, model: str, fallback: Fallback, user_id: str) -> None:
        health, now = self._of.setdefault(model, _Health()), self._clock()
        self._count(health, fallback, user_id, now)
        for scope in _scopes(user_id):
            verdict = health.verdicts.get(scope)
            is_probed = verdict is not None and verdict.state is HealthState.PROBED
            if is_probed or _keeps_failing(health, scope, fallback):
                if verdict is None:
                    whom = _WHOM[len(scope)]
                    log.warning("model %s is left out%s for %g s: it keeps failing", model, whom, fallback.retry_s)
                health.verdicts[scope] = _Verdict(HealthState.OUT, now)

    @staticmethod
    def _count(health: _Health, fallback: Fallback, user_id: str, now: float) -> None:
        """No user's failures count more often than is enough to leave the model out for him."""
        owner = _scopes(user_id)[-1]
        own = [one for one in health.failures if one[1] == owner]
        if len(own) >= fallback.failures:
            health.failures.remove(own[0])
        health.failures.append((now, owner))
        while health.failures[0][0] < now - fallback.window_s:
            health.failures.popleft()
        longest_s = fallback.retry_s + fallback.window_s
        over = [scope for scope, verdict in health.verdicts.items() if verdict.since < now - longest_s]
        for scope in over if len(health.verdicts) > len(health.failures) else ():
            del health.verdicts[scope]

    def answered(self, model: str, user_id: str) -> None:
        """The model has begun an answer to the user."""
        health = self._of.get(model)
        if health is None:
            return
        probed = [
            scope
            for scope in _scopes(user_id)
            if scope in health.verdicts and health.verdicts[scope].state is HealthState.PROBED
        ]
        for scope in probed:
            del health.verdicts[scope]
        if probed:
            log.warning("model %s answers again", model)
            health.failures = deque(one for one in health.failures if one[1][: len(probed[0])] != probed[0])
        if not health.verdicts and not health.failures:
            del self._of[model]


def _keeps_failing(health: _Health, scope: Scope, fallback: Fallback) -> bool:
    """Whether it has failed often enough in the scope, for two of its tenants or users."""
    depth = len(scope)
    owners = [owner for _, owner in health.failures if owner[:depth] == scope]
    is_one = depth == len(_WHOM) - 1
    return len(owners) >= fallback.failures and (is_one or len({owner[: depth + 1] for owner in owners}) >= _FEWEST)


def _scopes(user_id: str) -> tuple[Scope, Scope, Scope]:
    tenant = tenant_of(user_id) or user_id
    return (), (tenant,), (tenant, user_id)
