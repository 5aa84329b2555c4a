"""Two waits of one answer that end together, and each rule of that, broken on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from agents import tool_results
from app.answering.kept import Kept
from app.delivery.partition import Partition
from app.features.agents import asked
from app.features.agents.asked import AskedByAnswer
from app.features.open_calls import OpenCalls
from app.features.waits import approvals, wake
from app.features.waits.wake import Woken
from tables.asleep import Sleep
from tables.tool_calls import ToolRounds
from tests.simulation.two_waits import PAIRS, storm

_COMMIT = wake.commit
_LEAVE = AskedByAnswer.leave


@pytest.mark.parametrize("seed", range(2 * len(PAIRS)))
def test_each_wait_ends_once_and_the_answer_wakes_once(seed: int) -> None:
    """By hand 3,000 seeds (two_waits.py)."""
    assert storm(seed, kills=3) == []


def _of_the_store(calls: OpenCalls, key: Any) -> ToolRounds | None:
    return calls.committed(key)


def _wakes_with_each(partition: Partition, key: Any, rounds: ToolRounds) -> Woken:
    """With the first result, whatever is missing."""
    head = partition.ownership.sleepers.head(key)
    if head is None or head.state is Sleep.AWAKE:
        return Woken((), ())
    return wake.wake(partition, key, rounds)


async def _apart(
    partition: Partition, keys: Iterable[Any], woken: Iterable[Woken], record: Any = None, **how: Any
) -> None:
    """What is decided of an answer, and its wake, in two transactions."""
    first, *others = woken
    keys = list(keys)
    await _COMMIT(partition, [], [first], record, **how)
    await _COMMIT(partition, keys, others, **how)


def _result_alone(stage: AskedByAnswer, kept: Kept) -> Kept:
    """The end of an agent leaves its result, and wakes nobody."""
    left = _LEAVE(stage, kept)
    return kept if stage._left is None else kept.with_change(stage._left.changes[0]) if left is not kept else kept


MUTANTS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "a decision does not know what is decided and not committed": ((OpenCalls, "decided", _of_the_store),),
    "the first of two results wakes": tuple(
        (room, "wake_with", _wakes_with_each) for room in (approvals, asked, tool_results)
    ),
    "a decision and its wake are two transactions": ((approvals, "commit", _apart),),
    "a result and its wake are two transactions": ((tool_results, "commit", _apart),),
    "an agent's end wakes nobody": ((AskedByAnswer, "leave", _result_alone),),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, broken in MUTANTS[mutant]:
        monkeypatch.setattr(owner, name, broken)
    for seed in range(300):
        if storm(seed):
            return
    pytest.fail(f"300 seeds did not notice that {mutant}")
