"""What changes while an answer sleeps holds for what it reads and says when it wakes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from aiokafka import TopicPartition
from msgspec.structs import replace

from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.private.value import PrivateValue
from models.interface.generation import FinishReason
from tables.records import Table
from tests.simulation.analyzer import FickleAnalyzer
from tests.simulation.judges import FickleJudges
from tests.simulation.test_sleeping import ASKED, CONDITIONS, DAY_S, KEY, SLEEPS, Waits

QUESTION = "question 7"
REQUEST = {**ASKED, "request_id": "r", "prompt": QUESTION}
MASKED = replace(SLEEPS, guard=GuardRules(pii="mask"))


def change_policy(course: Waits, policy: Policy) -> None:
    """The worker reads another policy."""
    process = course.simulation.alive[0]
    process._policy = policy
    with process.loop.running():
        process.loop.create_task(process._read_policy())


def questions_read(course: Waits) -> list[set[str]]:
    """The questions in each prompt of the answer."""
    return list(course.simulation.prompts[KEY].values())


async def _finds_all(_: Any, texts: Sequence[str], _asker: Any) -> tuple[PrivateValue, ...]:
    return (PrivateValue("PERSON", QUESTION),) if any(QUESTION in text for text in texts) else ()


async def _knows_all(_: Any, texts: Sequence[str], categories: frozenset[str], _asker: Any) -> frozenset[str]:
    return categories if any(QUESTION in text for text in texts) else frozenset()


def test_private_values_are_hidden_from_then_on_although_nothing_hid_them_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FickleAnalyzer, "find", _finds_all)
    course = Waits(monkeypatch, after_s=6.0)
    course.send(1.0, **REQUEST)
    course.after(4.0, partial(change_policy, course, MASKED))
    course.run()
    first, *_, last = questions_read(course)
    assert (first, last) == ({"r7"}, set())
    assert course.turns()["r"].finish_reason is FinishReason.LENGTH


def _masked(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(monkeypatch, 6.0, MASKED, dataclasses.replace(CONDITIONS, pii="mask"))


def test_a_turn_of_which_values_are_hidden_stands_where_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FickleAnalyzer, "find", _finds_all)
    course = _masked(monkeypatch)
    course.send(1.0, **REQUEST)
    course.send(4.0, request_id="s", prompt="meanwhile", max_tokens=3)
    course.send(30.0, request_id="t", prompt="behind both", max_tokens=3)
    course.run()
    ((*_, row),) = [[value for value in course.committed(Table.CONVERSATIONS).values() if value]]
    assert [one["request_id"] for one in json.loads(row)["turns"]] == ["s", "r", "t"]


def test_who_reads_an_open_turn_hides_what_was_found_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    async def finds_nothing(*_: Any) -> tuple[PrivateValue, ...]:
        return ()

    monkeypatch.setattr(FickleAnalyzer, "find", finds_nothing)
    course = _masked(monkeypatch)
    course.send(1.0, **REQUEST)
    course.send(4.0, **{**REQUEST, "request_id": "s", "prompt": "meanwhile"})
    course.after(6.0, partial(monkeypatch.setattr, FickleAnalyzer, "find", _finds_all))
    course.run()
    first, *_, last = course.simulation.prompts["u", "s"].values()
    assert (first, last) == ({"r7"}, set())


def test_who_reads_an_open_turn_has_results_that_the_guard_removes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FickleJudges, "categories_of", _knows_all)
    course = Waits(monkeypatch, 6.0)
    course.send(1.0, **REQUEST)
    course.send(9.0, request_id="s", prompt="meanwhile", max_tokens=3)
    course.send(30.0, request_id="t", prompt="behind both", max_tokens=3)
    course.after(12.0, partial(change_policy, course, replace(SLEEPS, guard=GuardRules(prompt={"risky": "block"}))))
    course.run()
    assert course.turns()["r"].finish_reason is FinishReason.FILTERED
    assert {course.turns()[one].finish_reason for one in "st"} == {FinishReason.LENGTH}


def test_a_prompt_that_is_not_allowed_any_more_ends_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FickleJudges, "categories_of", _knows_all)
    course = Waits(monkeypatch, after_s=6.0)
    course.send(1.0, **REQUEST)
    course.after(4.0, partial(change_policy, course, replace(SLEEPS, guard=GuardRules(prompt={"risky": "block"}))))
    course.run()
    assert len(questions_read(course)) == 1
    assert course.turns()["r"].finish_reason is FinishReason.FILTERED


@pytest.mark.parametrize("erased_at", [2.2, 8.0], ids=["before it sleeps", "while it sleeps"])
def test_a_turn_of_another_conversation_that_is_erased_leaves_its_rows(
    erased_at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Waits(monkeypatch, after_s=20.0, conditions=dataclasses.replace(CONDITIONS, milvus=True))
    assert course.simulation.milvus is not None
    course.simulation.milvus.late = 0.0
    course.send(1.0, request_id="r0", conversation_id="a", prompt="question 5", max_tokens=2)
    course.send(6.0, **REQUEST, recall=1)
    course.send(4.0 + erased_at, "controls", type="erase_conversation", conversation_id="a")
    rows: list[bytes] = []
    course.after(16.0, lambda: rows.extend(value for value in course.committed(Table.ASLEEP).values() if value))
    course.simulation.keep_running(60)
    course.run("changed", "wrong_calls")
    first, *_, last = questions_read(course)
    assert (first, last) == ({"r5", "r7"}, {"r7"})
    assert len(rows) > 1
    assert not any(b"question 5" in row for row in rows)
    assert course.turns()["r"].finish_reason is FinishReason.LENGTH


def test_a_week_without_workers_in_which_kafka_deletes_what_it_has_said(monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=8 * DAY_S)
    course.send(1.0, **{**REQUEST, "max_tokens": 1, "tool_timeout_ms": 20 * 86_400_000})
    tokens = course.simulation.broker.log(TopicPartition("tokens", 0))
    course.after(5.0, course.simulation.alive[0].kill)
    course.after(7 * DAY_S, lambda: tokens.retain(tokens.end))
    course.after(8 * DAY_S + 60.0, partial(course.simulation.start_again, "w1"))
    course.simulation.keep_running(8 * DAY_S + 120.0)
    course.run()
    turn = course.turns()["r"]
    told = {event.index: event.text or "" for event in course.events("r") if event.tokens}
    assert (turn.finish_reason, turn.answer) == (FinishReason.LENGTH, "".join(told.values()))


@pytest.mark.parametrize("keeps_data", [True, False])
def test_all_workers_are_replaced(keeps_data: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    course = Waits(monkeypatch, after_s=12.0)
    course.send(1.0, **REQUEST)
    course.after(5.0, course.simulation.alive[0].stop)
    if not keeps_data:
        course.after(8.0, course.simulation.disk.images.clear)
    course.after(9.0, partial(course.simulation.start_again, "w1"))
    course.run()
    assert course.sleeps() > 1
    assert course.turns()["r"].finish_reason is FinishReason.LENGTH
