"""Choose the model of a request by the routes of the policy, and the arm of an experiment by its user.

An arm is chosen by weighted rendezvous hashing (Schindelhauer and Schomaker, "Weighted distributed hash tables", 2005):
every arm gets a score from the hash of the user and the arm, scaled by its weight, and the highest score wins. A user
therefore keeps an arm unless that arm loses weight against the others: when a new arm takes 5 %, only those 5 % move,
and no user moves between the other arms.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence

from app.features.routing.load_figures import Load
from app.features.routing.relief import Relief
from app.policy.file import AUTO_MODEL, DEFAULT_MODEL, Arm, Policy, Route
from app.wire.event import Plan
from app.wire.request import Request

_FRESH_S = 0.1


class Router:
    """The first route whose conditions hold decides. A request that names a model is not routed.

    `clock` is monotonic, in seconds; `load` gives the figures of this worker; `is_out` says which arms of experiments
    get no more users. `update` has to be called now and then: a route that depends on load has to end even if no
    request comes.
    """

    def __init__(
        self,
        policy: Policy,
        clock: Callable[[], float],
        load: Callable[[], Load],
        is_out: Callable[[str, str], bool] = lambda _experiment, _arm: False,
    ) -> None:
        self._is_out = is_out
        self._clock = clock
        self._load = load
        self._fresh_until = 0.0
        self._routes: list[tuple[Route, Relief | None]] = []
        self.fallback = policy.fallback
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Decide by this policy from now on. Routes that stay the same keep their state."""
        self.fallback = policy.fallback
        kept = dict(self._routes)
        self._routes = [
            (route, kept.get(route) or (Relief(route) if route.when.watches_load else None)) for route in policy.routes
        ]

    @property
    def is_on(self) -> bool:
        """Whether a route or a chain may decide which model answers."""
        return bool(self._routes or self.fallback.chain)

    @property
    def longest_counted(self) -> int:
        """The most prompt tokens that any route compares with."""
        return max((route.when.prompt_tokens_below or 0 for route, _ in self._routes), default=0)

    @property
    def reliefs(self) -> dict[str, Relief]:
        """The routes that depend on load, by name."""
        return {route.name: relief for route, relief in self._routes if relief is not None}

    def decide(self, request: Request, prompt_tokens: Callable[[], int]) -> Plan | None:
        """None if no route matches the request. `prompt_tokens` counts the tokens of the request's own prompt."""
        if request.model not in {None, AUTO_MODEL} or not self._routes:
            return None
        if self._clock() >= self._fresh_until:
            self.update()
        for route, relief in self._routes:
            if (relief is None or relief.is_on) and _matches(route, request, prompt_tokens):
                return self._decision(route, request)
        return None

    def _decision(self, route: Route, request: Request) -> Plan:
        if route.experiment is None:
            return Plan(model=route.model or DEFAULT_MODEL, route=route.name, notice=route.notice)
        experiment = route.experiment
        arms = [arm for arm in route.arms if not self._is_out(experiment, arm.model)]
        arm = arm_of(experiment, request.user_id, arms)
        return Plan(model=arm.model, route=route.name, experiment=experiment, arm=arm.model, notice=route.notice)

    def update(self) -> None:
        """Compare the load with the conditions of the routes."""
        if reliefs := self.reliefs.values():
            now, load = self._clock(), self._load()
            self._fresh_until = now + _FRESH_S
            for relief in reliefs:
                relief.update(load, now)


def _matches(route: Route, request: Request, prompt_tokens: Callable[[], int]) -> bool:
    when = route.when
    if when.tenant is not None and (request.tenant or "") not in when.tenant:
        return False
    if when.priority is not None and request.priority not in when.priority:
        return False
    return when.prompt_tokens_below is None or prompt_tokens() < when.prompt_tokens_below


def arm_of(experiment: str, user_id: str, arms: Sequence[Arm]) -> Arm:
    """The arm of the user. `arms` has at least one with a weight above 0."""
    return max((arm for arm in arms if arm.weight), key=lambda arm: (_score(experiment, user_id, arm), arm.model))


def _score(experiment: str, user_id: str, arm: Arm) -> float:
    named = f"{experiment}\0{arm.model}\0{user_id}"
    number = int.from_bytes(hashlib.blake2b(named.encode(), digest_size=8).digest())
    return -arm.weight / math.log((number + 1) / (2**64 + 1))
