"""The judges that a policy needs, and what they have said about the last texts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from cachetools import LRUCache

from app.guard.digest import digest_of
from app.guard.judges.classifier import ClassifierJudge
from app.guard.judges.endpoint import EndpointJudge
from app.guard.judges.injection import Embeds, InjectionJudge
from app.guard.judges.judge import Judge, JudgeError
from app.guard.judges.profanity import ProfanityJudge
from app.policy.guard_rules import INJECTION, PROFANITY, GuardRules, judged

_REMEMBERED = 4096


class JudgesTexts(Protocol):
    """What guards need of judges."""

    async def close(self) -> None: ...

    async def categories_of(self, texts: Sequence[str], categories: frozenset[str]) -> frozenset[str]:
        """Those of the categories to which one of the texts belongs; raises `JudgeError`."""


class Judges:
    """Implements `JudgesTexts` by these rules. Raises `JudgeError` if a judge cannot be loaded, or a category has none.

    `categories_of` is a function of the texts, so a text that is judged again has the same verdict.
    """

    def __init__(self, rules: GuardRules, embedder: Embeds | None = None) -> None:
        self._rules = rules
        self._judges = {judge: names for judge, names in _judges_of(rules, embedder) if names}
        self._known: LRUCache[tuple[Judge, bytes], Mapping[str, float]] = LRUCache(_REMEMBERED)

    async def categories_of(self, texts: Sequence[str], categories: frozenset[str]) -> frozenset[str]:
        wanted = {judge: names & categories for judge, names in self._judges.items() if names & categories}
        try:
            async with asyncio.timeout(self._rules.timeout_s):
                found = await asyncio.gather(*(self._found(judge, texts, names) for judge, names in wanted.items()))
        except TimeoutError:
            raise JudgeError(f"the judgement took longer than {self._rules.timeout_s:g} s") from None
        return frozenset().union(*found)

    async def close(self) -> None:
        for judge in self._judges:
            if isinstance(judge, EndpointJudge):
                await judge.close()

    async def _found(self, judge: Judge, texts: Sequence[str], names: frozenset[str]) -> frozenset[str]:
        rows = await self._scores(judge, [text for text in texts if text.strip()])
        if missing := sorted(name for name in names if any(name not in row for row in rows)):
            raise JudgeError(f"{type(judge).__name__} has no score for {', '.join(missing)}")
        limits = {name: self._rules.thresholds.get(name, judge.threshold) for name in names}
        return frozenset(name for name, limit in limits.items() if any(row[name] >= limit for row in rows))

    async def _scores(self, judge: Judge, texts: Sequence[str]) -> list[Mapping[str, float]]:
        keys = {text: (judge, digest_of(text)) for text in texts}
        rows = {text: self._known[key] for text, key in keys.items() if key in self._known}
        if unknown := [text for text in keys if text not in rows]:
            try:
                judgements = await judge.scores(unknown)
            except JudgeError:
                raise
            except Exception as error:  # noqa: BLE001 - a library may raise anything, and its message may quote the text
                raise JudgeError(f"{type(judge).__name__} failed: {type(error).__name__}") from None
            for text, row in zip(unknown, judgements, strict=True):
                rows[text] = self._known[keys[text]] = row
        return list(rows.values())


def _judges_of(rules: GuardRules, embedder: Embeds | None) -> Iterator[tuple[Judge, frozenset[str]]]:
    """Each judge with its categories: the built-in ones, then labels of the classifier, then those of the server."""
    left = judged(rules.prompt) | judged(rules.answer)
    if PROFANITY in left:
        yield ProfanityJudge(), frozenset({PROFANITY})
    if INJECTION in left:
        yield InjectionJudge(embedder), frozenset({INJECTION})
    left -= {PROFANITY, INJECTION}
    labels: tuple[str, ...] = ()
    if left and rules.classifier is not None:
        classifier = ClassifierJudge(rules.classifier)
        labels = classifier.labels
        yield classifier, left & {*labels}
        left -= {*labels}
    if left and rules.moderation is None:
        raise JudgeError(f"no judge knows {', '.join(sorted(left))}; the classifier knows {', '.join(labels)}")
    if left and rules.moderation is not None:
        yield EndpointJudge(rules.moderation, rules.timeout_s), left
