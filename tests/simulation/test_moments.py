"""Moments that storms meet too rarely: what holds there, and that each promise, broken on purpose, is found there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition

from app.delivery.accepted import Former
from app.delivery.partition import Partition
from app.delivery.partitions import Partitions
from app.delivery.record import CONTROLS, REQUESTS
from app.delivery.resume.answer_log import AnswerLog
from app.features.admission import Admitted
from app.features.cache.recordings import ResponseCache
from app.features.own.user_limit import UserRates
from app.features.recall import stage as recalling
from app.features.waits.timers import LaterRequests
from app.kafka.broker_clock import BrokerClock
from app.policy.file import Policy, TenantRule
from app.wire.event import PLAN, TokenEvent
from tables.conversations import MemoryRules
from tables.records import KeptTurn, Table
from tests.simulation.clients import Pipe, SimClients, SimProducer
from tests.simulation.scenario import Conditions
from tests.simulation.test_directed import PRICED, Course
from tests.simulation.test_sleeping import ASKED, CONDITIONS, SLEEPS, Waits, _puts_t1

LIMITED = Policy(tenants={"acme": TenantRule(user_requests_per_min=1)})
SWEPT = Conditions(ttl_s=1.0, sweep_s=0.3)
ONCE_A_MINUTE = Conditions(user_limit=1)


def _wrong(course: Course, kills: int = 0) -> list[str]:
    outcome = course.simulation.run()
    assert course.killed == kills
    return [] if outcome.clean else [outcome.line()]


def _ask(course: Course, at: float, number: int, conversation: str = "default", **fields: Any) -> None:
    asked = {"prompt": f"question {number}", "max_tokens": 2, "conversation_id": conversation, **fields}
    course.send(at, request_id=f"r{number}", **asked)


def _hold(course: Course, topic: str, seconds: float) -> None:
    course.simulation.broker.held[topic] = course.simulation.began + seconds


def _has_begun(request_id: str, course: Course, _process: Any) -> bool:
    return any(event.tokens for event in course.events(request_id))


def _has_recalled(course: Course, _process: Any) -> bool:
    notices = (event.notice for event in course.events("r1") if event.notice is not None)
    return any(one.code == PLAN and (one.details or {}).get("recalled") for one in notices)


def _is_committed(course: Course, _process: Any) -> bool:
    return b'["u","r1"]' in course.committed(Table.ENDED)


def _owns(_course: Course, _process: Any) -> bool:
    return True


class _Slow(Pipe):
    def _move(self, delay: float) -> None:
        super()._move(delay + 0.3)


def _slow_producer(clients: SimClients) -> SimProducer:
    producer = SimProducer(clients.link)
    producer._pipe = _Slow(clients.link)
    return producer


def an_owner_dies_behind_a_commit(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Deliveries take longer than commits."""
    monkeypatch.setattr(SimClients, "token_producer", _slow_producer)
    course = Course(Policy())
    _ask(course, 1.0, 1)
    course.kill_at(_is_committed)
    return _wrong(course, kills=1)


def a_request_comes_late(_: pytest.MonkeyPatch) -> list[str]:
    """By its own time the conversation has not expired."""
    course = Course(Policy(), SWEPT)
    _ask(course, 1.0, 1)
    _ask(course, 1.7, 2)
    course.after(1.5, partial(_hold, course, REQUESTS, 8.0))
    wrong = _wrong(course)
    read = set[str]().union(*course.simulation.prompts["u", "r2"].values())
    return wrong if read == {"r1", "r2"} else [*wrong, f"r2 has read {read}"]


def an_owner_is_suspended_behind_its_fence(_: pytest.MonkeyPatch) -> list[str]:
    """A user asks and is erased while it is suspended, with a clock that lags by 3 s."""
    course = Course(Policy())
    readers = course.simulation.broker.log(TopicPartition("tokens", 0)).readers
    (owner,), first = course.simulation.alive, iter((True,))

    def suspend() -> None:
        if not next(first, False):
            return
        owner.suspend()
        course.after(3.0, owner.resume)
        _ask(course, 0.5, 1)
        course.send(2.5, CONTROLS, type="erase")

    readers.append(suspend)
    return _wrong(course)


def an_owner_dies_before_it_hears_of_an_erasure(_: pytest.MonkeyPatch) -> list[str]:
    """It has begun an answer that knows what is erased; the next owner hears of the erasure first."""
    course = Course(Policy())
    _ask(course, 1.0, 0)
    course.send(3.0, CONTROLS, type="erase")
    _ask(course, 3.5, 1, max_tokens=60)
    course.after(2.5, partial(_hold, course, CONTROLS, 6.0))
    course.after(3.7, partial(_hold, course, REQUESTS, 12.0))
    course.kill_at(partial(_has_begun, "r1"))
    return _wrong(course, kills=1)


def an_owner_dies_with_what_it_has_recalled(_: pytest.MonkeyPatch) -> list[str]:
    """The same, before the first token."""
    course = Course(Policy(), Conditions(milvus=True))
    assert course.simulation.milvus is not None
    course.simulation.milvus.late = 0.0
    _ask(course, 1.0, 0, "a")
    course.send(5.0, CONTROLS, type="erase")
    _ask(course, 5.5, 1, "b", recall=1)
    course.after(4.5, partial(_hold, course, CONTROLS, 7.0))
    course.after(5.7, partial(_hold, course, REQUESTS, 14.0))
    course.kill_at(_has_recalled)
    return _wrong(course, kills=1)


def an_erased_user_asks_the_same_again(_: pytest.MonkeyPatch) -> list[str]:
    course = Course(PRICED)
    for at, number in ((1.0, 1), (5.0, 2)):
        _ask(course, at, number, f"c{number}", prompt="the same question", temperature=0)
    course.send(4.0, CONTROLS, type="erase")
    return _wrong(course)


def an_owner_begins_what_it_has_admitted_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nothing that it has written of the request arrives, which is its user's last one for this minute."""
    monkeypatch.setattr(Pipe, "_late", lambda *_: None)
    course = Course(LIMITED, ONCE_A_MINUTE)
    _ask(course, 1.0, 1, tenant="acme")
    course.after(0.9, partial(setattr, course.simulation.broker, "trouble", 1.0))
    course.after(2.0, partial(setattr, course.simulation.broker, "trouble", 0.0))
    return _wrong(course)


def an_owner_dies_with_what_it_has_admitted(_: pytest.MonkeyPatch) -> list[str]:
    """Others had all slots, so that a later request came first. At the next owner the earlier one does."""
    course = Course(LIMITED, ONCE_A_MINUTE)
    others = [f"v{number}" for number in range(course.simulation.settings().max_in_flight)]
    for user in others:
        course.send(1.0, user=user, request_id="r0", prompt="speak", max_tokens=100_000)
    _ask(course, 2.0, 1, "a", priority="batch", tenant="acme")
    _ask(course, 2.1, 2, "b", priority="interactive", tenant="acme", max_tokens=300)
    for number, user in enumerate(others):
        course.send(3.0 if not number else 15.0, CONTROLS, user, type="cancel", request_id="r0")
    course.kill_at(partial(_has_begun, "r2"))
    return _wrong(course, kills=1)


def later_turns_push_out_one_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    course = Waits(monkeypatch, after_s=None)
    course.send(1.0, request_id="r", **ASKED)
    course.send(20.0, CONTROLS, type="cancel", request_id="r")
    for number in range(course.simulation.settings().conversation_turns + 1):
        _ask(course, 3.0 + number, number)
    wrong = _wrong(course)
    (row,) = filter(None, course.committed(Table.CONVERSATIONS).values())
    return wrong if b'"request_id":"r",' in row else [*wrong, "r is forgotten"]


def _is_due_as_it_is_read(is_there: Callable[[Any, Any], bool], _: pytest.MonkeyPatch) -> list[str]:
    course = Course(SLEEPS, CONDITIONS)
    _ask(course, 1.5, 1, not_before=int((course.simulation.began + 11.0) * 1000))
    _ask(course, 5.0, 2)
    course.kill_at(is_there, back_s=20.0)
    wrong = _wrong(course, kills=1)
    return wrong if [*course.turns()] == ["r2", "r1"] else [*wrong, "r1 has passed r2"]


async def _end_without_waiting(answer: AnswerLog, event: TokenEvent) -> TokenEvent:
    await answer._send(event)
    return event


async def _clock_as_watermark(_owner: Partitions, partition: Partition) -> int:
    return partition.ownership.clock.now()


_ADMIT, _HOLDS, _REMEMBER = UserRates.admit, LaterRequests.holds, MemoryRules.remember


def _counts_each_try(rates: UserRates, user_id: str, _request_id: str, limit: int) -> bool:
    return _ADMIT(rates, user_id, f"{len(rates._admitted.get(user_id, ()))}", limit)


def _holds_no_due_one(timers: LaterRequests, partition: Partition, inflight: Any, admit: Any) -> bool:
    is_due = (inflight.accepted.request.not_before or 0) <= partition.ownership.clock.now()
    return not is_due and _HOLDS(timers, partition, inflight, admit)


def _forgets_what_is_pushed_out(rules: MemoryRules, conversation: Any, turn: KeptTurn, at: int) -> Any:
    known = () if conversation is None else conversation.turns
    is_new = turn.open or turn.request_id != "r" or any(one.request_id == "r" for one in known)
    return _REMEMBER(rules, conversation, turn, at) if is_new else conversation


@dataclass(frozen=True, slots=True)
class Moment:
    """`course` tells what is wrong behind it: nothing, unless `name` of `owner` is broken."""

    course: Callable[[pytest.MonkeyPatch], list[str]]
    owner: Any
    name: str
    broken: Any


_OF_TIMERS = (LaterRequests, "holds", _holds_no_due_one)
MOMENTS = {
    "an end does not wait for the deliveries before it": Moment(
        an_owner_dies_behind_a_commit, AnswerLog, "_end", _end_without_waiting
    ),
    "the watermark is the clock": Moment(a_request_comes_late, Partitions, "watermark", _clock_as_watermark),
    "a worker doubts timestamps by a clock that lags": Moment(
        an_owner_is_suspended_behind_its_fence, BrokerClock, "_latest", BrokerClock.now
    ),
    "an erasure leaves what a former owner has written": Moment(
        an_owner_dies_before_it_hears_of_an_erasure, Former, "begun_at", property(lambda _: None)
    ),
    "erased turns are recalled": Moment(
        an_owner_dies_with_what_it_has_recalled, recalling, "without_erased", lambda plan, *_: plan
    ),
    "the cache keeps the answers of an erased user": Moment(
        an_erased_user_asks_the_same_again, ResponseCache, "forget", lambda *_: None
    ),
    "a request that is begun again counts again": Moment(
        an_owner_begins_what_it_has_admitted_again, UserRates, "admit", _counts_each_try
    ),
    "a next owner asks the limit about what was admitted": Moment(
        an_owner_dies_with_what_it_has_admitted, Admitted, "is_decided", lambda *_: False
    ),
    "a turn that was pushed out is forgotten": Moment(
        later_turns_push_out_one_that_sleeps, MemoryRules, "remember", _forgets_what_is_pushed_out
    ),
    "one that is due as it is read, as none before it, passes others": Moment(
        partial(_is_due_as_it_is_read, _owns), *_OF_TIMERS
    ),
    "one that is due as it is read again passes others": Moment(partial(_is_due_as_it_is_read, _puts_t1), *_OF_TIMERS),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_is_wrong_behind_it(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOMENTS[moment].course(monkeypatch) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_broken_promise_is_found(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = MOMENTS[moment]
    monkeypatch.setattr(case.owner, case.name, case.broken)
    assert case.course(monkeypatch) != []
