"""Experiments in which a new arm, the canary, loses its users if it does worse than the others.

Two cumulative sums watch it (Page, "Continuous inspection schemes", 1954), one answer at a time:

- errors: the share of its answers in which its model failed, compared with that share of the other arms. It counts
  whether or not a fallback hid the failure from the user.
- slow answers: the share whose first token came later than the 95th percentile of the other arms, which is 5 % if it is
  as fast as they are.

A sum grows with each answer that is likelier if the share has risen by what the policy states, falls with each other
one, and never falls below 0. Above `_LIMIT` the canary is out: new requests of its users go to the other arms, in this
worker, until the route changes in the policy file or the worker starts again.

What one user's prompts do to a model is no evidence for all: his answers let a sum grow only as often as those of all
others have done, and so it is with the errors of the other arms.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from app.delivery.inflight import Outcome
from app.policy.file import Policy, Retreat
from app.wire.error import ErrorCode

log = logging.getLogger(__name__)

_LIMIT = math.log(1_000_000)
"""With equal arms, a canary is out by chance once in a million answers or less (Lorden, 1971)."""
_LEAST_SHARE = 0.005
_SLOW_SHARE = 0.05
_LEAST_OTHERS = 100
_KEPT = 500
_FAILURES = frozenset({ErrorCode.ENGINE_ERROR, ErrorCode.OVERLOADED})


def _is_evidence(users: deque[str], user_id: str) -> bool:
    """Whether one more of this user counts, who is added then: not while most are his own."""
    if 2 * users.count(user_id) > len(users):
        return False
    users.append(user_id)
    return True


@dataclass(slots=True)
class ShareSum:
    """The cumulative sum of log likelihood ratios for a share."""

    value: float = 0.0
    users: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))  # whose bad answers it counts

    def add(self, *, hit: bool, usual: float, more: float, user_id: str) -> None:
        """`usual` is the share that is expected, `more` the increase that matters."""
        if hit and not _is_evidence(self.users, user_id):
            return
        raised = min(0.99, usual + more)
        ratio = raised / usual if hit else (1 - raised) / (1 - usual)
        self.value = max(0.0, self.value + math.log(ratio))
        if not self.value:
            self.users.clear()

    @property
    def is_over(self) -> bool:
        return self.value > _LIMIT


@dataclass(slots=True)
class Canary:
    """One arm and its evidence. `others` are the answers of the other arms, `waits` their first tokens in ms."""

    rules: Retreat
    is_out: bool = False
    others: int = 0
    errors_of_others: int = 0
    failed_others: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))  # their users
    waits: deque[int] = field(default_factory=lambda: deque(maxlen=_KEPT))
    errors: ShareSum = field(default_factory=ShareSum)
    slow: ShareSum = field(default_factory=ShareSum)

    def count_other(self, *, failed: bool, wait_ms: int | None, user_id: str) -> None:
        self.others += 1
        if failed and _is_evidence(self.failed_others, user_id):
            self.errors_of_others += 1
        if wait_ms is not None:
            self.waits.append(wait_ms)

    def count(self, *, failed: bool, wait_ms: int | None, user_id: str) -> None:
        usual = max(_LEAST_SHARE, (self.errors_of_others + 0.5) / (self.others + 1) if self.others else 0.0)
        self.errors.add(hit=failed, usual=min(0.9, usual), more=self.rules.more_errors, user_id=user_id)
        if wait_ms is not None and len(self.waits) >= _LEAST_OTHERS:
            p95 = sorted(self.waits)[math.ceil(0.95 * len(self.waits)) - 1]
            self.slow.add(hit=wait_ms > p95, usual=_SLOW_SHARE, more=self.rules.more_slow, user_id=user_id)


class Canaries:
    """The canaries of one worker, by experiment."""

    def __init__(self, policy: Policy) -> None:
        self._of: dict[str, Canary] = {}
        self._routes: dict[str, object] = {}
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Watch the canaries of this policy. One whose route has changed gets a new chance."""
        routes = {route.experiment: route for route in policy.routes if route.experiment and route.retreat}
        self._of = {
            name: self._of[name] if self._routes.get(name) == route else Canary(route.retreat)
            for name, route in routes.items()
            if route.retreat is not None
        }
        self._routes = dict(routes)

    def is_out(self, experiment: str, arm: str) -> bool:
        canary = self._of.get(experiment)
        return canary is not None and canary.is_out and canary.rules.arm == arm

    @property
    def states(self) -> dict[tuple[str, str], bool]:
        """Whether the canary is out, by experiment and arm."""
        return {(name, canary.rules.arm): canary.is_out for name, canary in self._of.items()}

    def answered(self, outcome: Outcome, failed_models: Collection[str]) -> tuple[str, str] | None:
        """Count a committed answer, in which these models have failed. Returns the experiment and the arm that is out
        from this answer on.
        """
        accepted, answer, end, plan = outcome.inflight.accepted, outcome.answer, outcome.end, outcome.answer.plan
        canary = self._of.get(plan.experiment or "")
        if canary is None or plan.arm is None or plan.cached is not None:
            return None
        if plan.model != plan.arm and plan.arm not in failed_models:
            return None  # its model is left out, so another one has answered
        failed = plan.arm in failed_models or (end.error is not None and end.error.code in _FAILURES)
        is_measured = accepted.former.answer is None and not failed and answer.first_at is not None
        wait_ms = max(0, (answer.first_at or 0) - accepted.at) if is_measured else None
        if plan.arm != canary.rules.arm:
            canary.count_other(failed=failed, wait_ms=wait_ms, user_id=accepted.request.user_id)
            return None
        canary.count(failed=failed, wait_ms=wait_ms, user_id=accepted.request.user_id)
        if canary.is_out or not (canary.errors.is_over or canary.slow.is_over):
            return None
        canary.is_out = True
        why = "its model fails more often" if canary.errors.is_over else "its first tokens come later"
        log.error(
            "experiment %s: arm %s gets no more users in this worker, because %s than those of the other arms",
            plan.experiment,
            plan.arm,
            why,
        )
        return plan.experiment or "", plan.arm
