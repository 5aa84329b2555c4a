"""Results of calls that come back as later records reach the model once, whatever dies."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from app.answering import job, kept
from app.answering.run import Run
from tables.conversations import MemoryRules
from tables.records import Conversation, KeptTurn
from tests.simulation.faults import FAULTS, expire_log, inflict_some, suspend
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.scenario import Load, Simulation

STORMS = 20
AT_ONCE = 20


def returning_storm(seed: int) -> Simulation:
    """Results of calls come back as later records, and conversations go on behind them."""
    chance = random.Random(f"results {seed}")
    load = Load(
        requests=8,
        users=2,
        tokens=chance.choice((2, 8)),
        repeats=0.1,
        cancels=0.1,
        deadlines=chance.choice((0.0, 0.2)),
        erases=chance.choice((0.0, 0.1)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        results=0.7,
    )
    simulation = Simulation(seed, workers=1 + seed % 3, partitions=1 + seed // 3 % 2, load=load)
    inflict_some(simulation, (*FAULTS, suspend, expire_log))
    return simulation


@pytest.mark.parametrize("first", range(0, STORMS, AT_ONCE))
def test_results_that_come_back_continue_their_turn_and_no_other(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = returning_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


def test_most_storms_have_results_that_are_answered_and_some_that_are_refused() -> None:
    outcomes = [returning_storm(seed).run() for seed in range(10)]
    assert sum(outcome.verdict.errors["invalid_request"] for outcome in outcomes) > 5
    assert sum(outcome.verdict.turns for outcome in outcomes) > 150


_REMEMBER = MemoryRules.remember


def _beside_the_turn_that_asked(
    rules: MemoryRules, conversation: Conversation | None, turn: KeptTurn, at: int
) -> Conversation:
    """As if a turn with results were a turn of its own."""
    own = replace(turn, steps=tuple(_without_calls(one) for one in turn.steps))
    return _REMEMBER(rules, conversation, own, at)


def _without_calls(message: Any) -> Any:
    return message if not message.calls else type(message)(message.role, message.content)


def _question_of_nobody(request: Any, memory: Any) -> str:
    return str(request.question) if request.tool_results is None else ""


def _forgets_what_waited(run: Run) -> None:
    """As if an erasure were about all that a request reads which was asked before it was carried out."""
    if any(run.accepted.at <= mark.applied for mark in run.marks.marks):
        run.conversation, run.memory = None, ()


MUTANTS: dict[str, Mutant] = {
    "results do not reach the model": Mutant(job, "steps_of", lambda *_: (), returning_storm),
    "results of calls that nobody has made are answered": Mutant(
        job, "check_dialogue", lambda *_: None, returning_storm
    ),
    "a turn with results stands beside the one that asked": Mutant(
        MemoryRules, "remember", _beside_the_turn_that_asked, returning_storm
    ),
    "a turn with results loses its question": Mutant(kept, "question_of", _question_of_nobody, returning_storm),
    "an erasure forgets what was said after it": Mutant(
        Run, "drop_erased", _forgets_what_waited, returning_storm, hint=19
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)
