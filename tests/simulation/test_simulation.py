"""The protocol under faults at every moment: nothing lost, nothing twice, nothing torn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.big_erasure import big_erasure
from tests.simulation.deletions import deleting_storm, late_erasures, recalling_deletions, replayed_deletions
from tests.simulation.faults import inflict, kill, suspend
from tests.simulation.kinds import Make
from tests.simulation.leaves import false_leaves, leaving_storm
from tests.simulation.scenario import Load, Simulation
from tests.simulation.storms import (
    corrupt_storm,
    crammed_storm,
    crowded_storm,
    erasing_storm,
    expiring_storm,
    flooded_storm,
    masked_erasing_storm,
    masking_storm,
    mixed_storm,
    moderation_storm,
    reasoning_storm,
    rebalance_while_away,
    recalling_storm,
    repeated_erasures,
    replayed_turns,
    routed_storm,
    storm,
    suspended_fence,
    suspended_sweep,
    talking_storm,
    tool_storm,
    wide_storm,
)

ROOT = Path(__file__).parents[2]
STORMS = 1000
ERASURES = 200
LEAVES = 150
DELETIONS = 100
WIDE = 150
TOOLS = 100
ROUTED = 100
RECALLING = 50
MASKING = 50
MODERATION = 50
FLOODED = 50
MIXED = 100
REASONING = 100
TALKING = 50
DIRECTED = 15
AT_ONCE = 50
STRIDE = 72  # steps apart, where a fault falls
SMALL = Load(requests=3, users=2, tokens=2, over_s=0.5, cancels=0.3, repeats=0.3, garbage=0.3)


@pytest.mark.parametrize("first", range(0, STORMS, AT_ONCE))
def test_random_faults_on_random_loads_leave_no_trace(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, LEAVES, AT_ONCE))
@pytest.mark.parametrize("make", [leaving_storm, false_leaves])
def test_leaves_in_the_name_of_workers_dead_or_living_leave_no_trace(make: Make, first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = make(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, ERASURES, AT_ONCE))
def test_what_is_erased_among_random_faults_stays_so(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = storm(seed, erases=0.3).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, DELETIONS, AT_ONCE))
def test_conversations_that_are_erased_among_random_faults_stay_so_and_others_stay(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = deleting_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, TALKING, AT_ONCE))
def test_conversations_that_messages_continue_leave_no_trace(first: int) -> None:
    """Each such answer is the one that the turns before it give: see the verdict on texts."""
    for seed in range(first, first + AT_ONCE):
        outcome = talking_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, WIDE, AT_ONCE))
def test_wide_storms_leave_no_trace(first: int) -> None:
    """Clocks, expiry, erasures with a late Milvus, retention, lost tails, records of all kinds: see wide_storm."""
    for seed in range(first, first + AT_ONCE):
        outcome = wide_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, TOOLS, AT_ONCE))
def test_calls_over_kafka_are_made_once_and_their_results_count_once(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = tool_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, ROUTED, AT_ONCE))
def test_what_is_decided_about_an_answer_is_decided_once(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = routed_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, RECALLING, AT_ONCE))
def test_what_is_recalled_is_the_same_for_every_owner_and_never_erased(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = recalling_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, MASKING, AT_ONCE))
def test_every_owner_hides_the_same_private_values(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = masking_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, MODERATION, AT_ONCE))
def test_no_reader_gets_blocked_text_and_no_category_is_forgotten(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = moderation_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, REASONING, AT_ONCE))
def test_reasoning_is_apart_from_the_text_whoever_writes_it(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = reasoning_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, MIXED, AT_ONCE))
def test_workers_with_different_models_keep_what_was_decided_about_an_answer(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = mixed_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, FLOODED, AT_ONCE))
def test_requests_beyond_their_users_share_are_answered_once_and_in_order(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = flooded_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, FLOODED, AT_ONCE))
def test_requests_of_a_tenants_many_users_beyond_its_share_are_answered_once(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = crammed_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize(
    "make",
    [
        expiring_storm,
        masked_erasing_storm,
        suspended_sweep,
        suspended_fence,
        rebalance_while_away,
        erasing_storm,
        repeated_erasures,
        late_erasures,
        replayed_turns,
        replayed_deletions,
        recalling_deletions,
        crowded_storm,
        corrupt_storm,
        big_erasure,
    ],
)
def test_directed_storms_leave_no_trace(make: Callable[[int], Simulation]) -> None:
    for seed in range(DIRECTED):
        outcome = make(seed).run()
        assert outcome.clean, f"{make.__name__} {seed}: {outcome.line()}"


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
