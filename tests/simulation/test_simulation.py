"""The protocol under faults at every moment: nothing lost, nothing twice, nothing torn.

The seeds of BUDGET are the same in each run; test_seeds.py adds others of every kind with each commit, and those that
found something. `python -m tests.simulation 3000 0 all` runs as many as one has time for.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.simulation.deletions import deleting_storm
from tests.simulation.faults import inflict, kill, suspend
from tests.simulation.kinds import Make
from tests.simulation.leaves import false_leaves, leaving_storm
from tests.simulation.scenario import Load, Simulation
from tests.simulation.storms import (
    crammed_storm,
    flooded_storm,
    guarded_storm,
    mixed_storm,
    reasoning_storm,
    recalling_storm,
    routed_storm,
    storm,
    talking_storm,
    tool_storm,
    wide_storm,
)

BUDGET: dict[str, tuple[Make, int]] = {
    "random faults on random loads": (storm, 60),
    "erasures among random faults": (partial(storm, erases=0.3), 20),
    "leaves in the name of dead workers": (leaving_storm, 10),
    "leaves in the name of living workers": (false_leaves, 10),
    "conversations that are erased": (deleting_storm, 10),
    "conversations that messages continue, each answer by the turns before it": (talking_storm, 5),
    "clocks, expiry, a late Milvus, retention, lost tails, records of all kinds": (wide_storm, 12),
    "calls over Kafka, made once, whose results count once": (tool_storm, 10),
    "decisions about an answer, taken once": (routed_storm, 10),
    "older turns in prompts, the same for every owner and never erased ones": (recalling_storm, 5),
    "private values and blocked text, the same for every owner": (guarded_storm, 10),
    "reasoning apart from the text, whoever writes it": (reasoning_storm, 10),
    "workers with different models": (mixed_storm, 10),
    "requests beyond their users' share, in order": (flooded_storm, 5),
    "requests of a tenant's many users beyond its share": (crammed_storm, 5),
}
AT_ONCE = 20
STRIDE = 72  # steps apart, where a fault falls
SMALL = Load(requests=3, users=2, tokens=2, over_s=0.5, cancels=0.3, repeats=0.3, garbage=0.3)


def judge(make: Make, first: int, count: int) -> None:
    for seed in range(first, first + count):
        outcome = make(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize(
    ("name", "first"), [(name, first) for name, (_, seeds) in BUDGET.items() for first in range(0, seeds, AT_ONCE)]
)
def test_storms_leave_no_trace(name: str, first: int) -> None:
    make, seeds = BUDGET[name]
    judge(make, first, min(AT_ONCE, seeds - first))


@pytest.mark.parametrize("fault", [kill, suspend])
@pytest.mark.parametrize("first", [pytest.param(at, marks=[pytest.mark.slow] * (at > 2)) for at in range(STRIDE)])
def test_a_fault_at_every_step_leaves_no_trace(first: int, fault: object) -> None:
    """Every step is a stretch between two awaits: with the slow ones, a crash at every await point of three runs."""
    for seed in range(3):
        steps = Simulation(seed, load=SMALL).run().steps
        for step in range(1 + first, steps, STRIDE):
            simulation = Simulation(seed, load=SMALL)
            simulation.at_step(step, partial(inflict, simulation, fault))
            outcome = simulation.run()
            assert outcome.clean, f"{fault} at step {step} of seed {seed}: {outcome.line()}"


def test_a_quiet_run_answers_everything_and_drops_nothing() -> None:
    outcome = Simulation(1, load=Load(requests=12)).run()
    assert outcome.clean, outcome.line()
    assert (outcome.verdict.answered, outcome.verdict.late_events, outcome.verdict.epochs) == (12, 0, 1)
    assert outcome.verdict.resumed == 0
