"""A promise, broken on purpose, and the storms that have to notice.

A mutant counts as found only where the verdict sees a broken promise: in the topics and tables, or by a worker that
delivery itself ends. One that merely makes a process crash is not found: it could crash for a reason that has nothing
to do with the promise.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from app.delivery.resume.quarantine import Beginning, Isolation
from tests.simulation.scenario import Simulation
from tests.simulation.storms import storm

SEEDS = 400
"""A storm that meets its mutant once in forty notices it surely."""
_LONGEST_S = 240.0
"""The test's own timeout would tell nothing."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """`hint` is a seed that found it once: tried first, and all others after it. `more` is broken with it, where one
    mechanism stands in for the other.
    """

    owner: Any
    name: str
    broken: Any
    make: Callable[[int], Simulation] = storm
    hint: int = 0
    more: tuple[tuple[Any, str, Any], ...] = ()


async def enter_at_once(isolation: Isolation, _attempt: int) -> Beginning:
    isolation._together += 1
    return Beginning(isolation, is_suspect=False)


def find_broken_promise(mutant: str, case: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run its storms until one notices; fails the test if none does."""
    for owner, name, broken in ((case.owner, case.name, case.broken), *case.more):
        monkeypatch.setattr(owner, name, broken)
    began, runs, unjudged = time.monotonic(), 0, Counter[str]()
    for seed in dict.fromkeys((case.hint, *range(SEEDS))):
        if (took_s := time.monotonic() - began) > _LONGEST_S:
            break
        runs += 1
        try:
            outcome = case.make(seed).run()
        except Exception as error:  # noqa: BLE001 - a run that cannot be judged proves nothing
            unjudged[type(error).__name__] += 1
            continue
        if outcome.broken_promise:
            return
    judged = f"{runs} storms in {took_s:.0f} s, {unjudged.total()} without a verdict {dict(unjudged)}"
    pytest.fail(
        f"{judged}: none of them notices that {mutant}. Storms that meet it rarely find it by luck: sharpen its"
        " own, or direct its course (test_moments.py)"
    )
