"""Each foreign record is one request, and each answer one record of others, whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from agents import intake
from app.answering.containment import Containment
from app.answering.kept import Kept
from app.delivery.commits.commit import Commit, LostError
from app.delivery.record import Outgoing, Record
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.resume.beside import Beside
from app.delivery.resume.recovery import RequestKey
from app.delivery.resume.tokens import TokenLog
from app.features.foreign import intake as intake_of_others
from app.features.foreign.egress import Leaving, _Asked
from app.features.foreign.intake import IntakeRecords
from app.features.foreign.taking import Taking
from app.features.foreign.written_ahead import WrittenAhead
from app.wire.event import TokenEvent
from tables import records
from tables.records import RowChange, Table, Taken
from tests.simulation.scenario import Simulation
from tests.simulation.storms import foreign_storm
from tests.simulation.test_mutants import Mutant, find_broken_promise

STORMS = 20
AT_ONCE = 10


@pytest.mark.parametrize("first", range(0, STORMS, AT_ONCE))
def test_each_foreign_record_is_one_request_and_each_answer_one_record_of_others(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        outcome = foreign_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


def test_a_foreign_topic_goes_on_as_its_requests_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few may be written ahead, and whoever owns the partitions in which they end."""
    monkeypatch.setattr(intake, "_ROUNDS_AHEAD", 1)
    monkeypatch.setattr(intake, "_ROUNDS_OF_USERS", 1)
    for seed in range(AT_ONCE):
        outcome = foreign_storm(seed).run()
        assert outcome.clean, f"seed {seed}: {outcome.line()}"


_REQUEST = IntakeRecords._request
_LEAVE = Leaving.leave
_TOLD = AnswerLog.send_beside
_SEND_BESIDE = Beside.send
_TO_PRODUCER = TokenLog.send_beside


async def _commit_apart(taking: Taking, outputs: Sequence[Outgoing], behind: int, *, offset_first: bool) -> None:
    row = RowChange(
        Table.INTAKE, records.key(taking._at.topic, str(taking._at.partition)), records.encode(Taken(behind))
    )
    both = [Commit(None, (), tuple(outputs)), Commit(None, (row,))]
    for one in reversed(both) if offset_first else both:
        await taking._partition.context.queue.put(one)


async def _commits_its_offset_later(taking: Taking, outputs: Sequence[Outgoing], behind: int) -> None:
    await _commit_apart(taking, outputs, behind, offset_first=False)


async def _commits_its_offset_first(taking: Taking, outputs: Sequence[Outgoing], behind: int) -> None:
    await _commit_apart(taking, outputs, behind, offset_first=True)


def _asks_now(taking: IntakeRecords, record: Record) -> Outgoing:
    return replace(_REQUEST(taking, record), timestamp=None)


def _asks_here(taking: IntakeRecords, record: Record) -> Outgoing:
    return replace(_REQUEST(taking, record), partition=None)


def _tells_later(stage: Leaving, kept: Kept) -> Kept:
    told = _LEAVE(stage, kept).outputs[len(kept.outputs) :]
    partition = stage.run.partition
    stage.run.inflight.on_commit.append(lambda: partition.spawn(partition.commit(Commit(None, (), told))) and None)
    return kept


def _tells_no_failure(stage: Leaving, kept: Kept) -> Kept:
    return kept if kept.turn is None else _LEAVE(stage, kept)


def _tells_no_refusal(_taking: IntakeRecords, *_about: object) -> list[Outgoing]:
    return []


def _carries_nothing(*_about: object, **_options: object) -> list[tuple[str, bytes]]:
    return []


async def _owes_nothing(beside: Beside, now: int, *events: TokenEvent) -> list[Any]:
    beside._owed = ()
    return await _SEND_BESIDE(beside, now, *events)


async def _tells_the_end_behind_the_commit(answer: AnswerLog, *events: TokenEvent) -> None:
    async def later() -> None:
        await asyncio.sleep(1.0)
        with suppress(LostError):
            await _TOLD(answer, *events)

    if any(one.is_end for one in events):
        answer.telling = asyncio.ensure_future(later())  # type: ignore[attr-defined]
    else:
        await _TOLD(answer, *events)


async def _keeps_the_first_epoch(
    tokens: TokenLog, records_of: Callable[[int], Sequence[Outgoing]], key: RequestKey
) -> list[Any]:
    return await _TO_PRODUCER(tokens, lambda _epoch: records_of(0), key)


async def _hears_of_no_end(_ahead: WrittenAhead, _written: object) -> None:
    await asyncio.sleep(0)


MUTANTS: dict[str, Mutant] = {
    "a foreign topic does not hear that its requests have ended": Mutant(
        WrittenAhead,
        "catch_up",
        _hears_of_no_end,
        foreign_storm,
        more=((intake, "_ROUNDS_AHEAD", 1), (intake, "_ROUNDS_OF_USERS", 1)),
        hint=7,
    ),
    "a foreign record's offset is committed behind its request": Mutant(
        Taking, "_commit", _commits_its_offset_later, foreign_storm, hint=5
    ),
    "a foreign record's offset is committed before its request": Mutant(
        Taking, "_commit", _commits_its_offset_first, foreign_storm, hint=3
    ),
    "a next owner reads a foreign topic from the beginning": Mutant(intake, "next_of", lambda *_: 0, foreign_storm),
    "a foreign record is asked as of when it is read": Mutant(IntakeRecords, "_request", _asks_now, foreign_storm),
    "a foreign record's request stays with its reader": Mutant(
        IntakeRecords, "_request", _asks_here, foreign_storm, hint=3
    ),
    "an answer is told to foreign readers behind its commit": Mutant(
        Leaving, "leave", _tells_later, foreign_storm, hint=6
    ),
    "a failed answer leaves nothing for readers of errors": Mutant(
        Leaving, "leave", _tells_no_failure, foreign_storm, hint=3
    ),
    "a request that is refused before its answer leaves nothing for readers of errors": Mutant(
        Containment, "refused", lambda *_: (), foreign_storm, hint=3
    ),
    "a record that an intake refuses leaves nothing for readers of errors": Mutant(
        IntakeRecords, "_refusals", _tells_no_refusal, foreign_storm
    ),
    "what a sender wrote does not travel with the request": Mutant(
        intake_of_others, "source_headers", _carries_nothing, foreign_storm
    ),
    "what an erased user wrote is told again": Mutant(
        _Asked, "passed", property(lambda asked: asked._passed), foreign_storm, hint=3
    ),
    "a next owner does not send again what its predecessor may not have sent": Mutant(
        Beside, "send", _owes_nothing, foreign_storm, hint=6
    ),
    "a request is committed before its records of tokens are delivered": Mutant(
        AnswerLog, "send_beside", _tells_the_end_behind_the_commit, foreign_storm, hint=1
    ),
    "records of tokens do not say which owner wrote them": Mutant(
        TokenLog, "send_beside", _keeps_the_first_epoch, foreign_storm
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


def test_storms_have_foreign_records_of_all_kinds() -> None:
    topics: set[str] = set()
    for seed in range(4):
        simulation: Simulation = foreign_storm(seed)
        assert simulation.run().clean
        topics |= {at.topic for at, log in simulation.broker.logs.items() if log.end}
    assert {"asks", "pings", "answers", "pongs", "words", "reports", "failures"} <= topics
