"""The judges that a policy needs, and their scores of the last texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

import msgspec

from app.features.guard.fair_order import Asker, FairOrder
from app.features.guard.judges.injection import InjectionJudge
from app.features.guard.judges.judge import Judge, JudgeError
from app.features.guard.judges.plugged import PluggedJudge
from app.features.guard.remembered import Remembered
from app.policy.guard_rules import INJECTION, PROFANITY, GuardRules, judged
from models.embedder.embedder import Embeds

log = logging.getLogger(__name__)

_SAMPLE = "When does the parcel arrive? It was sent on Monday."
_PIECE = 2000
"""Characters of a text that count as one piece of work."""
Scores = Mapping[str, float]


class JudgesTexts(Protocol):
    """What guards need of judges."""

    async def close(self) -> None: ...

    async def warm(self) -> None:
        """Judge a text of no user, so that the first request does not wait for what is loaded at the first text."""

    async def categories_of(self, texts: Sequence[str], categories: frozenset[str], asker: Asker) -> frozenset[str]:
        """Those of the categories to which one of the texts belongs; raises `JudgeError`, and `BusyError` for a new
        request.
        """

    def forget(self, user: str) -> None:
        """Drop what is remembered of the user's texts."""


class Judges:
    """Implements `JudgesTexts` by these rules. Raises `JudgeError` if a judge cannot be loaded, or a category has none.

    `categories_of` is a function of the texts, so a text that is judged again has the same verdict.
    """

    def __init__(self, rules: GuardRules, embedder: Embeds | None = None) -> None:
        self._rules = rules
        self._judges = {judge: names for judge, names in _judges_of(rules, embedder) if names}
        self._turns = {judge: FairOrder(rules.timeout_s, judge.width) for judge in self._judges}
        self._known: dict[Judge, Remembered[Scores]] = {judge: Remembered() for judge in self._judges}

    async def categories_of(self, texts: Sequence[str], categories: frozenset[str], asker: Asker) -> frozenset[str]:
        reached: set[str] = set()
        for judge, names in self._judges.items():
            if wanted := names & categories:
                reached |= await self._reached(judge, texts, wanted, asker)
        return frozenset(reached)

    async def warm(self) -> None:
        for judge in self._judges:
            try:
                await judge.scores([_SAMPLE], nullcontext)
            except Exception as error:  # noqa: BLE001 - it may be away; a request is answered as the policy says
                what = error if isinstance(error, JudgeError) else type(error).__name__
                log.warning("guard: the judge %s has not judged its first text: %s", judge.name, what)

    def forget(self, user: str) -> None:
        for known in self._known.values():
            known.forget(user)

    async def close(self) -> None:
        for judge in self._judges:
            await judge.close()

    async def _reached(self, judge: Judge, texts: Sequence[str], names: frozenset[str], asker: Asker) -> frozenset[str]:
        scores = await self._scores(judge, [text for text in dict.fromkeys(texts) if text.strip()], asker)
        if missing := sorted(name for name in names if any(name not in of_text for of_text in scores)):
            raise JudgeError(f"the judge {judge.name} has no score for {', '.join(missing)}")
        limits = {name: self._rules.thresholds.get(name, judge.threshold) for name in names}
        return frozenset(name for name, limit in limits.items() if any(of_text[name] >= limit for of_text in scores))

    async def _scores(self, judge: Judge, texts: Sequence[str], asker: Asker) -> list[Scores]:
        memory = self._known[judge].of(asker.user)
        scores = {text: known for text in texts if (known := memory.get(text)) is not None}
        if unknown := [text for text in texts if text not in scores]:
            for text, judged in zip(unknown, await self._judgements(judge, unknown, asker), strict=True):
                scores[text] = judged
                memory.put(text, judged)
        return [scores[text] for text in texts]

    async def _judgements(self, judge: Judge, texts: Sequence[str], asker: Asker) -> list[Scores]:
        limit_s = self._rules.timeout_s
        with self._turns[judge].job(asker, 1 + sum(map(len, texts)) // _PIECE, limit_s) as job:
            try:
                return await judge.scores(texts, job.turn)
            except JudgeError:
                raise
            except TimeoutError:
                raise JudgeError(f"the judgement took longer than {limit_s:g} s") from None
            except Exception as error:  # noqa: BLE001 - a library may raise anything, and its message may quote the text
                raise JudgeError(f"the judge {judge.name} failed: {type(error).__name__}") from None


def _judges_of(rules: GuardRules, embedder: Embeds | None) -> Iterator[tuple[Judge, frozenset[str]]]:
    """Each judge with its categories: the built-in ones, then labels of the classifier, then those of the server."""
    left = judged(rules.prompt) | judged(rules.answer)
    if PROFANITY in left:
        yield PluggedJudge(PROFANITY, {}), frozenset({PROFANITY})
    if INJECTION in left:
        yield InjectionJudge(embedder), frozenset({INJECTION})
    left -= {PROFANITY, INJECTION}
    labels: tuple[str, ...] = ()
    if left and rules.classifier is not None:
        classifier = PluggedJudge("classifier", {"folder": rules.classifier})
        labels = classifier.categories
        yield classifier, left & {*labels}
        left -= {*labels}
    for name, settings in rules.judges.items():
        judge = PluggedJudge(name, settings)
        labels += judge.categories
        yield judge, left & {*judge.categories}
        left -= {*judge.categories}
    if left and rules.moderation is None:
        raise JudgeError(f"no judge knows {', '.join(sorted(left))}; those of the policy know {', '.join(labels)}")
    if left and rules.moderation is not None:
        server = msgspec.to_builtins(rules.moderation)
        yield PluggedJudge("moderation", {"server": server, "timeout_s": rules.timeout_s, "categories": left}), left
