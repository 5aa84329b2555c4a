"""The guard of one worker, by the policy in force."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.guard.analyzer import Analyzer, AnalyzerError, Analyzes
from app.policy.file import Policy, PolicyError
from app.policy.guard_rules import GuardRules
from models.private.value import PrivateValue

log = logging.getLogger(__name__)

UNJUDGED = "unjudged"
"""The category of a request that ends because there is no verdict about it."""


@dataclass(slots=True)
class GuardStats:
    """Searches for private values, those of them without a verdict, and their duration in total."""

    searches: int = 0
    failures: int = 0
    seconds: float = 0.0


class Guard:
    """`rules` and the analyzer that follows them. Raises `PolicyError` if an analyzer cannot be loaded.

    `draw` gives the random bytes of secrets.
    """

    def __init__(
        self,
        policy: Policy,
        load: Callable[[GuardRules], Analyzes] = Analyzer,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._load = load
        self.draw = draw
        self.rules = policy.guard
        self._analyzer = self._loaded(policy.guard)
        self.stats = GuardStats()

    async def change(self, policy: Policy) -> None:
        """Work by this policy from now on; raises `PolicyError`."""
        analyzer = await asyncio.to_thread(self._loaded, policy.guard)
        self.rules, self._analyzer = policy.guard, analyzer

    def _loaded(self, rules: GuardRules) -> Analyzes | None:
        if not rules.masks:
            return None
        try:
            return self._load(rules)
        except AnalyzerError as error:
            raise PolicyError(f"guard: {error}") from None

    async def find(self, texts: Sequence[str], about: str) -> tuple[PrivateValue, ...]:
        """The private values in these texts; raises `AnalyzerError`. `about` names their source in the log."""
        if self._analyzer is None:
            return ()
        began = time.monotonic()
        self.stats.searches += 1
        try:
            return await self._analyzer.find(texts)
        except AnalyzerError as error:
            self.stats.failures += 1
            log.error("%s: %s", about, error)
            raise
        finally:
            self.stats.seconds += time.monotonic() - began
