"""The guard of one worker, by the policy in force."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.features.guard.analyzer import Analyzer, AnalyzerError, Analyzes
from app.features.guard.fair_order import Asker, BusyError
from app.features.guard.judges.judge import JudgeError
from app.features.guard.judges.judges import Judges, JudgesTexts
from app.policy.file import Policy, PolicyError
from app.policy.guard_rules import Action, GuardRules, judged
from app.private.value import PrivateValue

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Reads:
    """How often texts were read, how often that ended without a verdict, and the seconds that it took in total."""

    count: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class GuardStats:
    """Searches for private values, and judgements. `refused`: new requests for which the guard had no time. `verdicts`:
    how often a category has been blocked or flagged.
    """

    searches: Reads = field(default_factory=Reads)
    judgements: Reads = field(default_factory=Reads)
    refused: int = 0
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The category because of which a text is blocked, and the categories that are flagged."""

    blocked: str | None = None
    flagged: tuple[str, ...] = ()


PASSED = Verdict()


class Guard:
    """`rules`, and the analyzer and judges that follow them. Raises `PolicyError` if one of them cannot be loaded.

    `draw` gives the random bytes of secrets.
    """

    def __init__(
        self,
        policy: Policy,
        load: Callable[[GuardRules], Analyzes] = Analyzer,
        draw: Callable[[int], bytes] = secrets.token_bytes,
        load_judges: Callable[[GuardRules], JudgesTexts] = Judges,
    ) -> None:
        self._load_judges = load_judges
        self._load = load
        self.draw = draw
        self.rules = policy.guard
        self._analyzer, self._judges = self._loaded(policy.guard)
        self.stats = GuardStats()
        self._former: list[JudgesTexts] = []  # judgements under way may still use them

    async def prepare(self, policy: Policy) -> GuardChange | None:
        """Load what the rules of this policy need; None if they are those in force. Raises `PolicyError`."""
        if policy.guard == self.rules:
            return None
        analyzer, judges = await asyncio.to_thread(self._loaded, policy.guard)
        await _warm(judges)
        return GuardChange(self, policy.guard, analyzer, judges)

    async def warm(self) -> None:
        """Before the first request: no text of a user waits, within its time limit, for what judges load first."""
        await _warm(self._judges)

    def use(self, rules: GuardRules, analyzer: Analyzes | None, judges: JudgesTexts | None) -> None:
        """Work by these rules from now on."""
        if self._judges is not None:
            self._former.append(self._judges)
        self.rules, self._analyzer, self._judges = rules, analyzer, judges

    def forget(self, user: str) -> None:
        """Drop what is remembered of the user's texts."""
        for part in (self._analyzer, self._judges):
            if part is not None:
                part.forget(user)

    async def stop(self) -> None:
        for judges in (*self._former, self._judges):
            if judges is not None:
                await judges.close()

    def _loaded(self, rules: GuardRules) -> tuple[Analyzes | None, JudgesTexts | None]:
        try:
            analyzer = self._load(rules) if rules.masks else None
            return analyzer, self._load_judges(rules) if rules.judges_prompts or rules.judges_answers else None
        except (AnalyzerError, JudgeError) as error:
            raise PolicyError(f"guard: {error}") from None

    async def find(self, texts: Sequence[str], asker: Asker) -> tuple[PrivateValue, ...]:
        """The private values in these texts; raises `AnalyzerError`, and `BusyError` for a new request."""
        if self._analyzer is None:
            return ()
        with self._counted(self.stats.searches, asker):
            return await self._analyzer.find(texts, asker)

    async def judge(self, texts: Sequence[str], actions: Mapping[str, Action], asker: Asker) -> Verdict:
        """The verdict on these texts by `actions`; raises `JudgeError`, and `BusyError` for a new request."""
        categories = judged(actions)
        if self._judges is None or not categories or not any(text.strip() for text in texts):
            return PASSED
        with self._counted(self.stats.judgements, asker):
            reached = await self._judges.categories_of(texts, categories, asker)
        hits = [(name, action) for name, action in actions.items() if name in reached]
        self.stats.verdicts.update(hits)
        blocked = next((name for name, action in hits if action == "block"), None)
        return Verdict(blocked, tuple(name for name, action in hits if action == "flag"))

    @contextmanager
    def _counted(self, reads: Reads, asker: Asker) -> Iterator[None]:
        began = time.monotonic()
        reads.count += 1
        try:
            yield
        except (AnalyzerError, JudgeError) as error:
            reads.failures += 1
            log.error("%s: %s", asker.about, error)
            raise
        except BusyError:
            self.stats.refused += 1
            raise
        finally:
            reads.seconds += time.monotonic() - began


async def _warm(judges: JudgesTexts | None) -> None:
    if judges is not None:
        began = time.monotonic()
        await judges.warm()
        log.info("the judges of the guard are warm after %.1f s", time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class GuardChange:
    """Rules whose analyzer and judges are loaded."""

    guard: Guard
    rules: GuardRules
    analyzer: Analyzes | None
    judges: JudgesTexts | None

    def apply(self) -> None:
        self.guard.use(self.rules, self.analyzer, self.judges)

    async def drop(self) -> None:
        if self.judges is not None:
            await self.judges.close()
