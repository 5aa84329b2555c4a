"""What an unexpected error about one request or record leaves behind."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest
from agents.containment import Containment
from agents.handlers import Handlers

from app.delivery.escalation import ESCALATING
from app.delivery.partition import Partition
from app.delivery.record import CONTROLS, Record
from app.delivery.resume.tokens import EventTooLargeError, TokenLog
from app.settings import Settings
from app.wire.error import ErrorCode
from app.wire.event import EventType, TokenEvent
from models.paced import paced
from models.registry import ModelRegistry
from tables import records
from tables.records import Table
from tests.unit.agents.inflight_requests import answer_with, inflight_of
from tests.unit.agents.partitions import FakePartition

SECRET = "the operator's secret system prompt"
SETTINGS = Settings(_env_file=None)


class Log:
    def __init__(self) -> None:
        self.events: list[TokenEvent] = []

    delivered = staticmethod(TokenLog.delivered)

    def now(self) -> int:
        return 1

    async def send(self, event: TokenEvent, *_: object) -> asyncio.Future[Any]:
        self.events.append(event)
        delivered = asyncio.get_running_loop().create_future()
        delivered.set_result(None)
        return delivered


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001
        return caught


def bench() -> tuple[Containment, FakePartition, Log]:
    partition, log = FakePartition(), Log()
    partition.ownership.tokens = log  # type: ignore[attr-defined]
    return Containment(SETTINGS, ModelRegistry(paced(1.0))), partition, log


async def test_request_ends_once_and_its_record_is_a_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    containment, partition, log = bench()
    inflight = inflight_of()
    end, commit = await containment.end(cast(Partition, partition), inflight, raised(KeyError(SECRET)))
    assert log.events == [end]
    assert end.type is EventType.ERROR
    assert end.error is not None
    assert (end.index, end.error.code) == (0, ErrorCode.ENGINE_ERROR)
    assert commit.record is inflight.record
    assert [output.topic for output in commit.outputs] == ["dead-letters"]
    assert [(change.table, change.key) for change in commit.changes] == [(Table.ENDED, records.key(*inflight.key))]
    assert [record.outcome for record in commit.audit] == ["engine_error"]
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert "KeyError in tests/unit/agents/test_containment.py" in line.getMessage()
    assert SECRET not in line.getMessage() + str(end) + str(commit.outputs)


async def test_end_of_an_answer_that_has_begun_comes_behind_its_tokens() -> None:
    containment, partition, _ = bench()
    inflight = inflight_of()
    inflight.recovered = answer_with("It", " is")
    end, _ = await containment.end(cast(Partition, partition), inflight, raised(ValueError()))
    assert end.index == 2


async def test_answer_that_has_an_end_gets_no_other_one() -> None:
    containment, partition, log = bench()
    inflight = inflight_of()
    inflight.recovered = answer_with("It")
    inflight.recovered.end = TokenEvent(type=EventType.DONE, index=1)
    end, commit = await containment.end(cast(Partition, partition), inflight, raised(ValueError()))
    assert end is inflight.recovered.end
    assert log.events == []
    assert commit.changes


async def test_request_that_cannot_even_be_audited_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise TypeError

    containment, partition, log = bench()
    monkeypatch.setattr("agents.containment.audit_of_request", broken)
    _, commit = await containment.end(cast(Partition, partition), inflight_of(), raised(ValueError()))
    assert len(log.events) == len(commit.outputs) == 1
    assert commit.audit == ()


async def test_cause_that_people_can_act_on_is_named() -> None:
    containment, partition, _ = bench()
    end, _ = await containment.end(cast(Partition, partition), inflight_of(), raised(EventTooLargeError(2_000_000)))
    assert end.error is not None
    assert "2000000 bytes" in end.error.message


@pytest.mark.parametrize("error", [ValueError(SECRET), RecursionError(), OSError(24, SECRET), AssertionError()])
async def test_record_that_raises_anything_becomes_a_dead_letter(error: Exception) -> None:
    containment, partition, _ = bench()
    handlers = handlers_that(error, containment)
    handlers.handle(cast(Partition, partition), Record(CONTROLS, 3, 7, 1, b"ann", b"{}"))
    await partition.settle()
    (commit,) = partition.finished
    assert commit.record is not None
    assert commit.record.offset == 7
    (letter,) = commit.outputs
    headers = dict(letter.headers)
    assert headers["error-code"] == b"invalid_request"
    assert type(error).__name__ in str(headers["error-message"])
    assert SECRET not in str(letter)


@pytest.mark.parametrize("kind", ESCALATING)
async def test_broken_invariants_and_lost_ownerships_are_nobodys_dead_letter(kind: type[Exception]) -> None:
    containment, partition, _ = bench()
    with pytest.raises(kind):
        handlers_that(kind("x"), containment).handle(
            cast(Partition, partition), Record(CONTROLS, 3, 7, 1, b"ann", b"{}")
        )
    assert partition.finished == []


def handlers_that(error: Exception, containment: Containment) -> Handlers:
    class Agent:
        def handle(self, *_: object) -> None:
            raise error

    agent: Any = Agent()
    nothing: Any = None
    return Handlers(
        SETTINGS,
        agent,
        agent,
        agent,
        nothing,
        nothing,
        containment,
        expect_rebalance=lambda _partition, _error: None,
        broken=lambda _error: None,
    )
