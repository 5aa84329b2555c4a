"""That the storms among answers that sleep can fail: each rule of sleeping and waking, broken on purpose, is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from agents import controls, requests, tool_results
from app.answering.containment import Containment
from app.answering.run import Run
from app.delivery.accepted import Former
from app.delivery.partition import Partition
from app.delivery.resume.answer_log import AnswerLog
from app.delivery.sleepers import Sleepers
from app.features import tool_rounds
from app.features.guard import masking
from app.features.guard.masking import Masked
from app.features.guard.moderation import Moderated
from app.features.open_calls import OpenCalls
from app.features.waits import clock, sleep, wake
from app.features.waits.clock import WaitClock
from app.features.waits.wake import Woken
from app.private.mask import Mask
from tables.asleep import Sleep, Sleeper
from tables.conversations import MemoryRules
from tables.records import Conversation, KeptTurn
from tables.tool_calls import NO_ROUNDS, ToolRounds, row
from tests.simulation import test_sleeping as directed
from tests.simulation import test_sleeping_races as races
from tests.simulation import test_slept_through as slept_through
from tests.simulation.mutant import Mutant, find_broken_promise
from tests.simulation.sleeping import sleeping_storm
from tests.simulation.world import LivelockError

_WAKE = wake.wake
_SLEEPER_OF = sleep._sleeper_of
_REMEMBER = MemoryRules.remember
_REMEMBERED = Run.remembered
_MASK_NOW = Masked._mask_now
_OPEN_TURN = sleep._open_turn


def _writes_no_record(partition: Partition, key: Any, rounds: Any = NO_ROUNDS, *, stops: bool = False) -> Woken:
    woken = _WAKE(partition, key, rounds, stops=stops)
    return Woken(woken.changes, woken.outputs[1:])


def _stays_asleep(partition: Partition, key: Any, rounds: Any = NO_ROUNDS, *, stops: bool = False) -> Woken:
    woken = _WAKE(partition, key, rounds, stops=stops)
    sleepers = partition.ownership.sleepers
    head = sleepers.head(key)
    assert head is not None
    return Woken((sleepers.decide(key, replace(head, state=Sleep.ASLEEP)),), woken.outputs)


async def _wakes_nothing(*_: Any) -> None:
    return


def _without(part: str, value: Any) -> Callable[..., Sleeper]:
    def made(*arguments: Any) -> Sleeper:
        sleeper = _SLEEPER_OF(*arguments)
        return replace(sleeper, answer=replace(sleeper.answer, **{part: value}))

    return made


def _as_of_its_sleep(*arguments: Any) -> Sleeper:
    sleeper = _SLEEPER_OF(*arguments)
    return replace(sleeper, head=replace(sleeper.head, at=sleeper.head.slept_at))


def _reads_what_has_come_since(run: Run) -> Any:
    sleeper = run.accepted.sleeper
    object.__setattr__(run.accepted, "sleeper", None)
    try:
        return _REMEMBERED(run)
    finally:
        object.__setattr__(run.accepted, "sleeper", sleeper)


def _keeps_the_open_turn(rules: MemoryRules, conversation: Conversation | None, turn: KeptTurn, at: int) -> Any:
    known = () if conversation is None else conversation.turns
    if any(one.request_id == turn.request_id for one in known):
        return conversation
    return _REMEMBER(rules, conversation, turn, at)


def _tells_no_end(_settings: Any, key: Any, head: Any, *_: Any, **__: Any) -> Any:
    return _STATE_RECORD(_settings, key, head)


_STATE_RECORD = sleep.state_record
_EVERYWHERE = ((clock, "wake"), (wake, "wake"))


def _of_wake(broken: Any, hint: int = 0) -> Mutant:
    (owner, name), *more = _EVERYWHERE
    return Mutant(owner, name, broken, sleeping_storm, hint, more=tuple((one, other, broken) for one, other in more))


MUTANTS: dict[str, Mutant] = {
    "a wake writes no record": _of_wake(_writes_no_record),
    "a woken answer counts as asleep": _of_wake(_stays_asleep),
    "a next owner does not know what was written before the sleep": Mutant(
        Sleepers, "answer_of", lambda *_: None, sleeping_storm
    ),
    "the rows have no tokens": Mutant(sleep, "segments_of", lambda *_: (), sleeping_storm),
    "a woken answer reads what has come since": Mutant(Run, "remembered", _reads_what_has_come_since, sleeping_storm),
    "a cancel does not reach an answer that sleeps": Mutant(controls, "stop", lambda *_: None, sleeping_storm),
    "a next owner does not look for answers that sleep": Mutant(Sleepers, "begin", lambda *_: None, sleeping_storm),
    "later requests do not see that an answer waits": Mutant(sleep, "_open_turn", lambda *_: (), sleeping_storm),
    "an open turn stays open": Mutant(MemoryRules, "remember", _keeps_the_open_turn, sleeping_storm, hint=1),
    "the end of an answer is not told": Mutant(sleep, "state_record", _tells_no_end, sleeping_storm),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_promise_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find_broken_promise(mutant, MUTANTS[mutant], monkeypatch)


def test_an_erasure_that_does_not_reach_an_answer_that_sleeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "wake_erased", _wakes_nothing)
    with pytest.raises(AssertionError):
        directed.test_what_a_user_does_reaches_an_answer_that_sleeps(
            {"type": "erase"}, has_text=False, monkeypatch=monkeypatch
        )


def test_a_repeat_that_wakes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_sleeps_on", lambda ownership, key, _: key in ownership.inflight_requests)
    with pytest.raises(AssertionError):
        directed.test_a_repeat_of_a_request_that_sleeps_begins_nothing(monkeypatch)


def test_a_wake_that_looks_for_the_model_of_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_rounds, "go_on", _wakes_nothing)
    with pytest.raises((AssertionError, StopIteration)):
        directed.test_an_answer_goes_on_with_the_model_that_is_served_when_it_wakes(monkeypatch)


def test_a_deadline_that_counts_from_the_wake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleep, "_sleeper_of", _without("timestamp", 1 << 44))
    with pytest.raises(AssertionError):
        directed.test_a_deadline_and_the_time_of_a_call_end_a_sleep(monkeypatch)


def test_a_last_result_that_does_not_wake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_results, "wake_with", lambda *_: Woken((), ()))
    with pytest.raises(AssertionError):
        directed.test_a_last_result_wakes_at_once(monkeypatch)


def test_time_that_wakes_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WaitClock, "_wake_due", _wakes_nothing)
    with pytest.raises((AssertionError, LivelockError)):
        directed.test_a_deadline_and_the_time_of_a_call_end_a_sleep(monkeypatch)


def test_rows_without_the_time_of_the_request_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleep, "_sleeper_of", _as_of_its_sleep)
    with pytest.raises(AssertionError):
        directed.test_days_without_a_worker_lose_nothing(monkeypatch)


def test_what_was_said_and_is_not_repeated_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AnswerLog, "repeat", _wakes_nothing)
    with pytest.raises(AssertionError):
        directed.test_days_without_a_worker_lose_nothing(monkeypatch)


def _reads_once(_: Any, former: Former) -> bool:
    return former.has_begun or former.plan.filtered is not None


@pytest.mark.parametrize(
    ("stage", "test"),
    [
        (Masked, slept_through.test_private_values_are_hidden_from_then_on_although_nothing_hid_them_before),
        (Moderated, slept_through.test_a_prompt_that_is_not_allowed_any_more_ends_its_answer),
    ],
)
def test_a_guard_that_reads_nothing_again_at_a_wake_is_found(
    stage: Any, test: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "is_decided", _reads_once)
    with pytest.raises(AssertionError):
        test(monkeypatch)


async def _hides_what_it_hid_before(stage: Masked) -> Mask:
    accepted = stage.run.accepted
    if stage._undecided is not None or not accepted.is_waking:
        return await _MASK_NOW(stage)
    stage._undecided = accepted.former.plan, stage.run.memory
    mask = await _MASK_NOW(stage)
    stage._undecided = None
    return mask


def _shows_all_open_turns(run: Run, rounds: ToolRounds) -> Any:
    hidden, run.answer.plan = run.answer.plan, replace(run.answer.plan, private=None)
    changes = _OPEN_TURN(run, rounds)
    run.answer.plan = hidden
    return changes


@pytest.mark.parametrize(
    ("owner", "name", "broken", "test"),
    [
        (sleep, "_open_turn", _shows_all_open_turns, "a_turn_of_which_values_are_hidden_stands_where_it_ends"),
        (Masked, "_mask_now", _hides_what_it_hid_before, "who_reads_an_open_turn_hides_what_was_found_by_then"),
        (masking, "past_values", lambda *_: (), "a_turn_of_which_values_are_hidden_stands_where_it_ends"),
        (
            masking,
            "without_result",
            lambda step: step,
            "who_reads_an_open_turn_has_results_that_the_guard_removes_later",
        ),
    ],
)
def test_a_prompt_with_what_the_guard_hides_is_found(
    owner: Any, name: str, broken: Any, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError, match="changed"):
        getattr(slept_through, f"test_{test}")(monkeypatch)


@pytest.mark.parametrize(("room", "erased_at"), [(sleep, 2.2), (wake, 8.0)])
def test_a_turn_that_is_erased_and_stays_in_its_rows_is_found(
    room: Any, erased_at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "without_erased", lambda plan, *_: plan)
    with pytest.raises(AssertionError):
        slept_through.test_a_turn_of_another_conversation_that_is_erased_leaves_its_rows(erased_at, monkeypatch)


async def _releases_late(containment: Any, partition: Partition, inflight: Any, asleep: Any) -> None:
    await partition.commit(asleep.commit, urgent=True)
    partition.release(inflight)
    asleep.settle()
    containment._observer.slept(partition.number, inflight)


def test_an_answer_that_is_in_flight_until_its_sleep_is_confirmed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Containment, "_let_sleep", _releases_late)
    with pytest.raises(AssertionError):
        races.test_a_result_wakes_what_has_not_heard_yet_that_it_sleeps(monkeypatch)


@pytest.mark.parametrize("stop_at", [1.4, 8.0])
def test_an_end_that_counts_once_it_is_committed_is_found(stop_at: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenCalls, "end", lambda _calls, key, _rounds: row(*key, None))
    with pytest.raises(AssertionError):
        races.test_a_result_that_comes_with_the_end_is_late(0, stop_at, monkeypatch)
