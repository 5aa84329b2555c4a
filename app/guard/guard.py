"""The guard of one worker, by the policy in force."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence

from app.guard.analyzer import Analyzer, AnalyzerError, Analyzes
from app.policy.file import Policy, PolicyError
from app.policy.guard_rules import GuardRules
from models.private_value import PrivateValue

log = logging.getLogger(__name__)

UNJUDGED = "unjudged"
"""The category of a request that ends because there is no verdict about it."""


class Guard:
    """`rules` and the analyzer that follows them. Raises `PolicyError` if an analyzer cannot be loaded.

    `failures` counts the texts without a verdict; `draw` gives the random bytes of secrets.
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
        self.failures = 0

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
        try:
            return await self._analyzer.find(texts)
        except AnalyzerError as error:
            self.failures += 1
            log.error("%s: %s", about, error)
            raise
