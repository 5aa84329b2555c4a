"""What an unexpected error about one request leaves behind."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from app.answering.containment import Containment
from app.answering.stage import Feature, Stage
from app.delivery.accepted import Former
from app.delivery.commits.commit import Commit
from app.delivery.escalation import ESCALATING
from app.delivery.inflight import InFlight
from app.delivery.observer import UNOBSERVED
from app.delivery.resume.tokens import EventTooLargeError
from app.wire.error import ErrorCode
from app.wire.event import EventType, TokenEvent
from tables import records
from tables.records import Table
from tests.unit.answering.runs import pipeline_of
from tests.unit.delivery.fake_partition import FakePartition
from tests.unit.delivery.inflight_requests import answer_with, inflight_of

SECRET = "the operator's secret system prompt"


class Failing(Feature):
    """A feature whose stage raises this before anything is decided."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def stage(self, run: Any) -> Stage:
        raise self._error


async def ended(error: BaseException, inflight: InFlight | None = None) -> tuple[list[TokenEvent], Commit]:
    """The events and the commit of a request about which this is raised."""
    partition, inflight = FakePartition(), inflight or inflight_of()
    await Containment(pipeline_of(Failing(error)), UNOBSERVED).answer(partition.real, inflight)
    (commit,) = partition.finished
    assert commit.record is inflight.accepted.record
    assert partition.released == [inflight]
    return partition.log.events, commit


async def test_request_ends_once_and_its_record_is_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    inflight = inflight_of()
    (end,), commit = await ended(KeyError(SECRET), inflight)
    assert end.type is EventType.ERROR
    assert end.error is not None
    assert (end.index, end.error.code) == (0, ErrorCode.ENGINE_ERROR)
    assert [output.topic for output in commit.outputs] == ["dead-letters"]
    assert [(change.table, change.key) for change in commit.changes] == [(Table.ENDED, records.key(*inflight.key))]
    assert [record.outcome for record in commit.audit] == ["engine_error"]
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "KeyError in tests/unit/answering/test_containment.py" in line.getMessage()
    assert SECRET not in line.getMessage() + str(end) + str(commit.outputs)


async def test_end_of_an_answer_that_has_begun_comes_behind_its_tokens() -> None:
    (end,), _ = await ended(ValueError(), inflight_of(Former(answer_with("It", " is"))))
    assert end.index == 2


async def test_answer_that_has_an_end_gets_no_other_one() -> None:
    former = answer_with("It")
    former.end = TokenEvent(type=EventType.DONE, index=1)
    events, commit = await ended(ValueError(), inflight_of(Former(former)))
    assert events == []
    assert commit.changes


async def test_request_that_cannot_even_be_audited_leaves_its_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TypeError

    monkeypatch.setattr("app.answering.containment.audit_of_request", broken)
    events, commit = await ended(ValueError())
    assert len(events) == len(commit.outputs) == 1
    assert commit.audit == ()


async def test_cause_that_people_can_act_on_is_named() -> None:
    (end,), _ = await ended(EventTooLargeError(2_000_000))
    assert end.error is not None
    assert "2000000 bytes" in end.error.message


@pytest.mark.parametrize("kind", ESCALATING)
async def test_broken_invariants_and_lost_ownerships_are_no_end_of_a_request(kind: type[Exception]) -> None:
    partition = FakePartition()
    with pytest.raises(kind):
        await Containment(pipeline_of(Failing(kind("x"))), UNOBSERVED).answer(partition.real, inflight_of())
    assert (partition.finished, partition.log.events) == ([], [])
