"""A gateway's copy of what waits for an approval: whatever is on `waits`, it holds what is open, up to its bound."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka import ConsumerRecord

from app.gateway.answers.approvals import Approvals
from app.gateway.answers.waiting import WaitingAnswers
from app.gateway.edge import bounds
from app.policy.file import Policy
from app.settings import Settings
from app.wire.waits import DecidedWait, Wait, WaitRecord
from tables.erasures import Scope
from tables.records import key

CALL = Wait("call_1", "approval", "refund", '{"amount": 20}', 9, "desk")
TOOL = Wait("call_2", "tool", "order_status")


@pytest.fixture
def approvals() -> Approvals:
    settings = Settings(_env_file=None)
    return Approvals(settings, WaitingAnswers(settings, Policy(), 1), 1)


def record(name: bytes | None, value: bytes | None) -> ConsumerRecord:
    made: Any = SimpleNamespace(key=name, value=value, headers=())
    return made


def state(request_id: str = "r1", waits: tuple[Wait, ...] = (CALL,), **fields: Any) -> ConsumerRecord:
    about: dict[str, Any] = {"conversation_id": "c", "tenant": None, "state": "asleep", "since": 5, "until": 9}
    one = WaitRecord(request_id=request_id, user_id="nina", tokens_offset=0, waits=waits, **{**about, **fields})
    return record(key("nina", request_id), msgspec.json.encode(one))


def listed(approvals: Approvals) -> list[str]:
    return [one.record.request_id for one in approvals.open]


def test_those_that_wait_longest_come_first_and_others_are_left_out(approvals: Approvals) -> None:
    approvals.read(state("late", since=7))
    approvals.read(state("early", (TOOL, CALL), since=3))
    approvals.read(state("tool", (TOOL,)))
    approvals.read(state("awake", state="awake"))
    assert listed(approvals) == ["early", "late"]
    assert [one.wait for one in approvals.open] == [CALL, CALL]


@pytest.mark.parametrize("name", [None, b"", b"nina", b"[1]", b"{}", b"\xff", b'["nina","r1"]'])
@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"\xff", b'{"state": "asleep"}', b"{" * 9999])
def test_what_no_worker_has_written_is_passed(approvals: Approvals, name: bytes | None, value: bytes) -> None:
    approvals.read(state())
    approvals.read(record(name, value))
    assert listed(approvals) == ["r1"]


def test_a_decision_is_known_to_those_that_wait_for_it_and_stays_as_past(approvals: Approvals) -> None:
    approvals.read(state())
    approvals.read(state(waits=(TOOL,), decided=(DecidedWait("call_1", "approved", "desk/ali"),)))
    assert listed(approvals) == []
    assert [(one.wait, one.decided.by) for one in approvals.past] == [(CALL, "desk/ali")]
    approvals.read(state(waits=(), state="ended", decided=(DecidedWait("call_1", "approved", "desk/ali"),)))
    assert len(approvals.past) == 1
    approvals.read(record(key("nina", "r1"), None))
    assert approvals.past == []


def test_one_that_ends_without_a_decision_is_no_past_one(approvals: Approvals) -> None:
    approvals.read(state())
    approvals.read(state(waits=(), state="ended"))
    assert (listed(approvals), approvals.past) == ([], [])


def test_an_erasure_takes_what_is_older(approvals: Approvals) -> None:
    for request_id, since in (("old", 5), ("new", 8)):
        approvals.read(state(request_id, since=since))
        approvals.read(state(f"{request_id}-past", since=since))
        approvals.read(state(f"{request_id}-past", waits=(), decided=(DecidedWait("call_1", "expired"),), since=since))
    approvals.drop(Scope("nina", "another"), 6)
    approvals.drop(Scope("omar"), 6)
    assert listed(approvals) == ["old", "new"]
    approvals.drop(Scope("nina"), 6)
    assert listed(approvals) == ["new"]
    assert [one.record.request_id for one in approvals.past] == ["new-past"]


def test_beyond_its_bound_it_says_that_there_are_more(approvals: Approvals, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(state("r0").value)
    monkeypatch.setattr(bounds, "APPROVALS_BYTES", 2 * size)
    for number in range(3):
        approvals.read(state(f"r{number}"))
        approvals.read(state(f"r{number}"))  # a repeat takes no more room
    assert listed(approvals) == ["r0", "r1"]
    assert approvals.has_more


async def test_who_waits_for_news_hears_of_them_once(approvals: Approvals) -> None:
    waiting = asyncio.create_task(approvals.change(5.0))
    await asyncio.sleep(0)
    approvals.read(state("tool", (TOOL,)))
    await asyncio.sleep(0)
    assert not waiting.done()
    with approvals.awaited(("nina", "r1")) as newest:
        approvals.read(state())
        assert await waiting
        assert (await newest) is not None
    assert not await approvals.change(0.0)
    stopping = asyncio.create_task(approvals.change(5.0))
    await asyncio.sleep(0)
    approvals.close()
    assert not await stopping
    assert not await approvals.change(5.0)
