"""One bad record is one bad answer: storms with hostile records, and what finds it if that is not so."""

from __future__ import annotations

from typing import Any

import pytest

from agents import requests
from agents.requests import Requests
from app.answering import attempts, containment
from app.answering.attempts import Attempting
from app.answering.containment import Containment
from app.answering.pipeline import Answering
from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlight
from app.delivery.partition import Partition
from app.delivery.record import Record
from app.delivery.resume import tokens
from app.delivery.resume.quarantine import Isolation
from app.search.hiding import Hiding
from app.search.intake import Write
from tests.simulation.hostile import Hostile, besieged_by
from tests.simulation.hostile_storms import (
    FAILED,
    hostile_calm,
    hostile_index,
    hostile_storm,
    killed_four_times,
    killed_often,
    killed_while_failing,
)
from tests.simulation.mutant import Mutant, enter_at_once, find_broken_promise
from tests.simulation.sabotage import MODELS, STAGES
from tests.simulation.scenario import Conditions, Load, Simulation

STORMS = 20
CALM = 10
KILLED = 20
INDEX = 10
FAILING = 10
AT_ONCE = 10

CASES = [*(f"{stage}-KeyError" for stage in STAGES), *(f"{stage}-TimeoutError" for stage in STAGES),
         *(f"model-{how}" for how in MODELS)]  # fmt: skip


@pytest.mark.parametrize("first", range(0, STORMS, AT_ONCE))
def test_a_hostile_record_has_one_outcome_and_no_good_request_notices(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = hostile_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, CALM, AT_ONCE))
def test_no_hostile_record_makes_a_partition_start_over(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        simulation = hostile_calm(seed)
        outcome = simulation.run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"
        # Workers that start one after another take over from each other.
        assert outcome.verdict.epochs <= 2 * simulation.partitions, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("case", CASES)
def test_whatever_is_raised_about_a_request_ends_that_request(case: str) -> None:
    stage = case.partition("-")[0]
    conditions = Conditions(milvus=stage in {"index", "recall"}, pii="mask")
    simulation = Simulation(3, workers=2, load=Load(requests=5), conditions=conditions)
    outcome = besieged_by(simulation, Hostile.of_request("mallory-0", f"bad-{case}-1", recall=2)).run()
    assert outcome.clean, outcome.line()
    assert outcome.verdict.epochs == 1, outcome.line()


@pytest.mark.parametrize("first", range(0, KILLED, AT_ONCE))
def test_no_innocent_is_quarantined_whatever_kills_workers(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        for outcome in killed_four_times(seed).run(), killed_often(seed).run():
            assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, FAILING, AT_ONCE))
def test_no_failure_of_a_model_counts_as_a_lost_worker(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = killed_while_failing(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


@pytest.mark.parametrize("first", range(0, INDEX, AT_ONCE))
def test_a_turn_without_a_verdict_holds_up_no_other(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = hostile_index(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


async def _contains_nothing(all_: Containment, partition: Partition, inflight: InFlight) -> None:
    answering = Answering(all_._pipeline, partition, inflight)
    end = await answering.to_its_end()
    leaves = [stage.leave for stage in answering.stages]
    commit = containment.commit_of(answering.run, leaves, end, inflight.accepted.at)
    await all_._commit(partition, inflight, end, commit, answering)


_BEGIN = Attempting._begin


async def _begins_late(stage: Attempting) -> None:
    """Once there is a prompt."""
    if stage.run.answer.prompt_digest is not None:
        await _BEGIN(stage)


async def _counts_failures(stage: Attempting) -> None:
    """As if a model that fails were a worker that is lost."""
    count = stage.run.inflight.attempts
    if stage.run.inflight in FAILED and count.is_recorded and count.from_index == stage.run.answer.index:
        count.lost += 1
        count.is_recorded = False
        count.end_beginning()
    await _BEGIN(stage)


async def _nothing(*_: Any) -> None:
    return None


def _waits_for_the_first(hiding: Hiding, write: Write) -> None:
    """As if one search at a time were made, and each waited for the one before."""
    hiding._waiting.append(write)
    if len(hiding) == 1:
        hiding.add(hiding._waiting.pop())


def staged(seed: int) -> Simulation:
    return hostile_calm(seed, kinds=("staged",))


def modelled(seed: int) -> Simulation:
    return hostile_calm(seed, kinds=("model",))


def deadly(seed: int) -> Simulation:
    return hostile_calm(seed, kinds=("deadly",))


def undecodable(seed: int) -> Simulation:
    return hostile_calm(seed, kinds=("undecodable",))


_RECEIVE = Requests.receive


def _skips_the_unreadable(agent: Any, partition: Partition, record: Record) -> None:
    if record.unreadable:
        partition.spawn(partition.commit(Commit(record)))
    else:
        _RECEIVE(agent, partition, record)


MUTANTS: dict[str, Mutant] = {
    "an exception about a request ends its worker": Mutant(
        Containment, "answer", _contains_nothing, staged
    ),
    "an exception about a request is its partition's": Mutant(
        containment, "ESCALATING", (Exception,), staged
    ),
    "an attempt is recorded late": Mutant(Attempting, "_begin", _begins_late, deadly),
    "a failure of the model counts as a lost attempt": Mutant(
        Attempting, "_begin", _counts_failures, killed_while_failing, hint=27
    ),
    "three lost attempts are enough": Mutant(attempts, "MOST_ATTEMPTS", 3, killed_while_failing, hint=812633),
    "a suspect is tried again at once": Mutant(
        attempts, "pause_before", lambda *_: 0.0, killed_while_failing, hint=812633
    ),
    "an answer that has grown between two kills is a suspect all the same": Mutant(
        requests, "lost_attempts", lambda last, _index: 0 if last is None else last.number, killed_often, hint=9,
        more=((attempts, "pause_before", lambda *_: 0.0),),  # without it a dozen kills meet nothing four times
    ),
    "attempts are not apart, and suspects not alone": Mutant(
        attempts, "pause_before", lambda *_: 0.0, killed_four_times,
        more=((Isolation, "enter", enter_at_once), (Isolation, "pass_suspect", _nothing)),
    ),
    "an event that is too large is the broker's fault": Mutant(tokens, "RECORD_ERRORS", (), modelled),
    "an unreadable record is skipped without a letter": Mutant(
        Requests, "receive", _skips_the_unreadable, undecodable
    ),
    "a record is read that consumers cannot decode": Mutant(
        Record, "check_readable", lambda _: None, undecodable, hint=2
    ),
    "a turn without a verdict holds up the others": Mutant(Hiding, "add", _waits_for_the_first, hostile_index),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


def test_deadly_requests_are_quarantined_at_every_stage() -> None:
    for seed in range(10):
        outcome = deadly(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"
