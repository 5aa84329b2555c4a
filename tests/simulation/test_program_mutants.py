"""That the storms among programs can fail: each rule of their steps, broken on purpose, is found."""

from __future__ import annotations

from typing import Any

import pytest
from parley_client.agents import program, step

from app.features.agents.asked import AskedAgents
from app.features.programs import history, stage
from app.features.programs.stage import Programmed
from tables.tool_calls import ToolRounds
from tests.simulation import test_programs as directed
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.program_storms import program_storm

_STEPS, _SAY = history.steps, Programmed._say


def _twice(rounds: ToolRounds) -> list[dict[str, Any]]:
    found = _STEPS(rounds)
    return found if len(found) < 2 else [*found, found[-1]]


def _one_short(rounds: ToolRounds) -> list[dict[str, Any]]:
    return _STEPS(rounds)[:-1] if len(_STEPS(rounds)) > 1 else _STEPS(rounds)


def _of_another(rounds: ToolRounds) -> list[dict[str, Any]]:
    """Each call has the outcome of the one before it."""
    found = _STEPS(rounds)
    calls = [one for one in found if one["command"]["command"] == "call"]
    for one, other in zip(calls[1:], [one["outcome"] for one in calls], strict=False):
        one["outcome"] = other
    return found


async def _say_again(stage_: Programmed, text: str) -> None:
    await _SAY(stage_, text)
    if stage_.run.accepted.former.is_replayed:
        await _SAY(stage_, text)


async def _say_nothing(stage_: Programmed, text: str) -> None:
    if not stage_.run.accepted.former.is_replayed:
        await _SAY(stage_, text)


def _always(*_: Any) -> bool:
    return True


MUTANTS: dict[str, Mutant] = {
    "an outcome is there twice": Mutant(stage, "steps", _twice, program_storm),
    "steps are off by one": Mutant(stage, "steps", _one_short, program_storm),
    "a step has the outcome of another one": Mutant(stage, "steps", _of_another, program_storm),
    "what is said is said again": Mutant(Programmed, "_say", _say_again, program_storm),
    "a next owner leaves out what is said": Mutant(Programmed, "_say", _say_nothing, program_storm),
    "a program that has changed is not noticed": Mutant(step, "check_same", lambda *_: None, program_storm),
    "a run takes the outcome of another step": Mutant(program._Run, "waits_for", _always, program_storm, hint=23),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


def test_an_agent_that_tells_its_end_to_no_program_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AskedAgents, "is_on", property(lambda _: False))
    with pytest.raises(AssertionError):
        directed.test_each_command_is_carried_out_once_and_in_its_order(monkeypatch)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_broken(seed: int) -> None:
    outcome = program_storm(seed).run()
    assert outcome.clean, outcome.line()
