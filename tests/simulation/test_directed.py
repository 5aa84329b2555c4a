"""Single courses of events that storms meet rarely."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaConnectionError

from agents.tool_results import ToolResults
from app.delivery import open_records
from app.features.cache.stage import Cached
from app.policy.file import CacheRules, Fallback, ModelSpec, Policy, PriceRule, Route
from app.wire.codec import decode
from app.wire.event import TokenEvent
from app.wire.turn import Turn
from app.wire.usage import UsageWindow
from models.interface import fair_slots
from models.interface.fair_slots import payers_of
from models.interface.generation import FinishReason
from tables.records import Table
from tests.faults.load import TOOLS
from tests.simulation.broker import Entry
from tests.simulation.process import Process
from tests.simulation.scenario import PLAIN, Conditions, Load, Simulation

TO_SMALL = Policy(models={"small": ModelSpec(path="demo")}, routes=(Route(name="r", model="small"),))
PRICED = Policy(cache=CacheRules(ttl_s=30), prices={"*": PriceRule(prompt=1.0, answer=1.0)})
SEED = 5
_WATCHED_S = 40.0
WAITING = {"tools": TOOLS, "tool_mode": "kafka", "tool_timeout_ms": 2000}


class Course:
    """One worker with this policy; what is sent to it is sent by the test."""

    def __init__(self, policy: Policy, conditions: Conditions = PLAIN, seed: int = SEED) -> None:
        class Alone(Simulation):
            def _policy(self) -> Policy:
                return policy

        self.simulation = Alone(seed, load=Load(requests=0), conditions=conditions)
        assert seed != SEED or self.simulation.settings().max_in_flight > 1
        self.simulation.keep_running(_WATCHED_S)
        self.killed = 0

    def send(self, at: float, topic: str = "requests", user: str = "u", **fields: Any) -> None:
        record = json.dumps({"user_id": user, **fields}).encode()
        self.after(at, lambda: self.simulation._append(topic, user, record))

    def after(self, at: float, happens: Callable[[], None]) -> None:
        self.simulation.world.after(at, happens)

    def kill_at(self, is_there: Callable[[Any, Process], bool], back_s: float = 0.5) -> None:
        """Kill the owner as soon as it is there, once; it comes back with its data."""

        def kill(owner: Process) -> None:
            self.killed += 1
            owner.kill()
            self.after(back_s, partial(self.simulation.start_again, owner.name))

        self.once(is_there, kill)

    def suspend_at(self, is_there: Callable[[Any, Process], bool], for_s: float) -> None:
        def suspend(owner: Process) -> None:
            owner.suspend()
            self.after(for_s, owner.resume)

        self.once(is_there, suspend)

    def once(self, is_there: Callable[[Any, Process], bool], happens: Callable[[Process], None]) -> None:
        """As soon as it is there, this happens to the owner."""

        def watch() -> None:
            owners = (one for one in self.simulation.alive if one.partitions and one.partitions[0]._ownership)
            owner = next((one for one in owners if is_there(self, one)), None)
            if owner is None:
                if self.simulation.world.now < self.simulation.began + _WATCHED_S:
                    self.after(0.0002, watch)
                return
            happens(owner)

        self.after(1.0, watch)

    def committed(self, table: Table) -> dict[bytes, bytes | None]:
        log = self.simulation.broker.log(TopicPartition(f"parley-{table.value}-changelog", 0))
        return {entry.key or b"": entry.value for entry in log.entries if entry.visible}

    def take_small_away(self) -> None:
        """The worker serves the model `small` no longer."""
        process = self.simulation.alive[0]
        models = process.worker._loaded.models
        small = models.find("small")
        assert small is not None
        with process.loop.running():
            models.replace(*(one for one in models if one is not small))
            models.forget(small.engine)

    def run(self, *unknown: str) -> None:
        """Run to the end; the verdict does not know whether faults of these kinds are any."""
        outcome = self.simulation.run()
        faults = {name: found for name, found in outcome.verdict.faults.items() if name not in unknown and found}
        assert (faults, outcome.wrong, outcome.crashes) == ({}, [], []), outcome.line()

    def records(self, topic: str) -> list[Entry]:
        logs = self.simulation.broker.logs.items()
        return [one for at, log in logs if at.topic == topic for one in log.entries if one.value and not one.marker]

    def turns(self) -> dict[str, Turn]:
        return {turn.request_id: turn for turn in (decode(Turn, one.value or b"") for one in self.records("turns"))}

    def all_events(self) -> list[TokenEvent]:
        return [decode(TokenEvent, one.value or b"", one.headers) for one in self.records("tokens")]

    def events(self, request_id: str) -> list[TokenEvent]:
        return [event for event in self.all_events() if event.request_id == request_id]


def test_an_answer_whose_repeat_breaks_off_goes_on_and_is_charged() -> None:
    course = Course(PRICED)
    same = {"prompt": "the same question", "temperature": 0, "max_tokens": 60}
    course.send(1.0, request_id="first", conversation_id="a", **same)
    course.send(1.05, request_id="second", conversation_id="b", **same)
    course.send(1.5, "controls", type="cancel", request_id="first")
    course.run()
    turns = course.turns()
    assert turns["first"].finish_reason is FinishReason.CANCELLED
    assert turns["second"].usage.completion_tokens == 60
    assert turns["second"].cached is None
    usage = [decode(UsageWindow, one.value or b"") for one in course.records("usage")]
    paid = sum(turn.usage.prompt_tokens + turn.usage.completion_tokens for turn in turns.values())
    newest = {one.window_start: one for one in sorted(usage, key=lambda one: one.revision)}
    assert sum(one.cached_requests for one in newest.values()) == 0
    assert sum(one.cost for one in newest.values()) == pytest.approx(paid / 1000)


def test_one_that_stays_free_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cached, "_paid", lambda _, job, then: then(job))
    with pytest.raises(AssertionError):
        test_an_answer_whose_repeat_breaks_off_goes_on_and_is_charged()


@pytest.mark.parametrize("chain", [(), ("small", "default")])
def test_a_model_that_leaves_while_its_answer_waits_for_tools_leaves_its_tokens(chain: tuple[str, ...]) -> None:
    course = Course(Policy(models=TO_SMALL.models, routes=TO_SMALL.routes, fallback=Fallback(chain=chain)))
    course.send(1.0, request_id="r", prompt="begin", max_tokens=8, **WAITING | {"tool_timeout_ms": 6000})

    course.after(4.0, course.take_small_away)
    course.run("torn_off", "changed")
    turn, events = course.turns()["r"], course.events("r")
    assert events[-1].error is None
    assert turn.answer
    if chain:
        assert turn.finish_reason is not FinishReason.PARTIAL
        assert turn.model_version == "paced@1"
    else:
        assert (turn.finish_reason, turn.model_version) == (FinishReason.PARTIAL, "small@1")


def test_answers_that_wait_end_in_time_while_results_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> None:
        raise KafkaConnectionError("no leader")

    monkeypatch.setattr(ToolResults, "_read", away)
    course = Course(Policy())
    asked = {"prompt": "begin", "max_tokens": 8, **WAITING, "tool_timeout_ms": 1000}
    course.send(1.0, request_id="times-out", **asked)
    course.send(1.0, request_id="late", conversation_id="b", deadline_ms=5000, **asked)
    course.send(1.0, request_id="cancelled", conversation_id="c", **{**asked, "tool_timeout_ms": 900_000})
    course.send(1.1, request_id="behind", prompt="behind", max_tokens=2)
    course.send(6.0, "controls", type="cancel", request_id="cancelled")
    course.simulation.world.run(course.simulation.world.now + 60)
    ends = {name: course.events(name)[-1] for name in ("times-out", "late", "cancelled", "behind")}
    for process in list(course.simulation.processes):
        process.kill()
    assert {name: end.finish_reason for name, end in ends.items() if name != "times-out"} == {
        "late": FinishReason.DEADLINE,
        "cancelled": FinishReason.CANCELLED,
        "behind": FinishReason.LENGTH,
    }
    assert ends["times-out"].is_end


def _ends_before_another_begins(user: str, requests: int = 30, tokens: int = 60, rounds: int = 32) -> int:
    """How many long answers of a user with many end before another user's first one begins. With a number in its
    name, each is of another user.
    """
    course = Course(Policy(), Conditions(rounds=rounds))
    for number in range(requests):
        asked = {"conversation_id": f"c{number}", "prompt": "go on", "max_tokens": tokens}
        course.send(1.0, user=user.format(number), request_id=f"long-{number}", **asked)
    course.send(3.0, user="v", request_id="short", prompt="and me?", max_tokens=2)
    course.simulation.keep_running(60)
    course.run()
    events = course.all_events()
    begins = next(at for at, event in enumerate(events) if event.user_id == "v" and event.tokens)
    return sum(event.is_end for event in events[:begins])


@pytest.mark.parametrize("user", ["u", "acme/u{}"])
@pytest.mark.parametrize("rounds", [32, 3])
def test_one_with_many_long_answers_delays_anothers_by_none_of_them(user: str, rounds: int) -> None:
    """Neither by those that have a slot, nor by those that the partition holds, nor by those that are parked."""
    assert _ends_before_another_begins(user, rounds=rounds) == 0


def test_a_user_who_may_hold_all_slots_delays_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_slots, "further", lambda _held, free: free)
    assert _ends_before_another_begins("u") > 0


def test_a_tenant_whose_users_may_fill_a_partition_delays_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_records, "_payers_of", lambda record: payers_of("", (record.key or b"").decode()))
    assert _ends_before_another_begins("acme/u{}", rounds=3) > 0
