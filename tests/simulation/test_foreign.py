"""Each foreign record is one request, and each answer one record of others, whatever dies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agents import intake
from agents.intake import _Taking
from app.answering.kept import Kept
from app.delivery.commits.commit import Commit
from app.delivery.record import Outgoing, Record
from app.features.egress import Leaving
from tables import records
from tables.records import Change, Table, Taken
from tests.simulation.faults import foreign_storm
from tests.simulation.scenario import Simulation
from tests.simulation.test_mutants import Mutant, find_broken_promise

STORMS = 150
AT_ONCE = 50


@pytest.mark.parametrize("first", range(0, STORMS, AT_ONCE))
def test_each_foreign_record_is_one_request_and_each_answer_one_record_of_others(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = foreign_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


_REQUEST = _Taking._request
_LEAVE = Leaving.leave


async def _commit_apart(taking: _Taking, outputs: Sequence[Outgoing], behind: int, *, offset_first: bool) -> None:
    row = Change(Table.INTAKE, records.key(taking._at.topic, str(taking._at.partition)), records.encode(Taken(behind)))
    both = [Commit(None, (), tuple(outputs)), Commit(None, (row,))]
    for one in reversed(both) if offset_first else both:
        await taking._partition.context.queue.put(one)


async def _commits_its_offset_later(taking: _Taking, outputs: Sequence[Outgoing], behind: int) -> None:
    await _commit_apart(taking, outputs, behind, offset_first=False)


async def _commits_its_offset_first(taking: _Taking, outputs: Sequence[Outgoing], behind: int) -> None:
    await _commit_apart(taking, outputs, behind, offset_first=True)


def _asks_now(taking: _Taking, record: Record) -> Outgoing:
    return replace(_REQUEST(taking, record), timestamp=None)


def _asks_here(taking: _Taking, record: Record) -> Outgoing:
    return replace(_REQUEST(taking, record), partition=None)


def _tells_later(stage: Leaving, kept: Kept) -> Kept:
    told = _LEAVE(stage, kept).outputs[len(kept.outputs) :]
    partition = stage.run.partition
    stage.run.inflight.on_commit.append(lambda: partition.spawn(partition.commit(Commit(None, (), told))) and None)
    return kept


MUTANTS: dict[str, Mutant] = {
    "a foreign record's offset is committed behind its request": Mutant(
        _Taking, "_commit", _commits_its_offset_later, foreign_storm
    ),
    "a foreign record's offset is committed before its request": Mutant(
        _Taking, "_commit", _commits_its_offset_first, foreign_storm, hint=2
    ),
    "a next owner reads a foreign topic from the beginning": Mutant(intake, "_next_of", lambda *_: 0, foreign_storm),
    "a foreign record is asked as of when it is read": Mutant(_Taking, "_request", _asks_now, foreign_storm),
    "a foreign record's request stays with its reader": Mutant(_Taking, "_request", _asks_here, foreign_storm, hint=3),
    "an answer is told to foreign readers behind its commit": Mutant(
        Leaving, "leave", _tells_later, foreign_storm, hint=6
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


def test_a_storm_has_foreign_records_of_all_kinds() -> None:
    simulation: Simulation = foreign_storm(1)
    assert simulation.run().clean
    topics = {at.topic for at, log in simulation.broker.logs.items() if log.end}
    assert {"asks", "pings", "answers", "pongs"} <= topics
