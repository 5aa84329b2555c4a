"""Answers that call tools over Kafka, wait, and go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from app.delivery.accepted import Former
from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlight
from app.features import tool_rounds
from app.features.tool_rounds import CANCELLED, ToolsOverKafka
from app.features.waits.approvals import TIMED_OUT
from app.wire.codec import decode
from app.wire.event import Plan, TokenEvent
from app.wire.tool_records import ToolCallRecord
from models.interface.generation import FinishReason, StreamEvent
from models.served.registry import ServedModel
from tables import records
from tables.records import Table
from tables.tool_calls import ToolRounds
from tests.unit.answering.bench import (
    NOW,
    SETTINGS,
    WEATHER,
    BenchPartition,
    Told,
    answered,
    same_at_every_cut,
    stop_at,
    stopped,
)
from tests.unit.answering.word_engine import failing, model, words_of
from tests.unit.features.stages.features import EMAIL, Finds, Judges, guard, policy_of, routing
from tests.unit.features.stages.tool_programs import tool_results

CALLING: dict[str, Any] = {"tools": [WEATHER], "tool_mode": "kafka"}


async def _called(
    *features: Any,
    partition: BenchPartition | None = None,
    models: Sequence[ServedModel] = (),
    result: str | None = "sunny",
    **how: Any,
) -> Told:
    tools, partition = ToolsOverKafka(SETTINGS), partition or BenchPartition()
    if result is not None:
        tool_results(partition, tools, result)
    return await answered(tools, *features, models=models, partition=partition, **{**CALLING, **how})


async def test_an_answer_to_a_client_that_runs_its_tools_itself_ends_in_its_calls() -> None:
    told = await _called(tool_mode="client")
    assert told.end.finish_reason is FinishReason.TOOL_CALLS
    assert (len(told.end.tool_calls or ()), told.notices, told.open_calls) == (1, [], False)


async def test_an_answer_calls_waits_and_goes_on_with_the_results() -> None:
    one = model()
    told = await _called(models=[one])
    assert told.notices == ["tool_calls", "tool_results"] * 2
    assert [len(job.generated) for job in words_of(one).jobs] == [0, 0, 0]
    assert ["sunny" in prompt for prompt in words_of(one).prompts] == [False, True, True]
    assert told.end.index == 6
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == 6
    assert told.end.usage.prompt_tokens == sum(len(job.prompt) for job in words_of(one).jobs)
    assert told.text.count("\n\n") == 2
    assert not told.open_calls
    assert told.partition.lent == 0


async def test_calls_are_records_that_name_the_request_and_when_they_expire() -> None:
    told = await _called(tool_timeout_ms=5000)
    calls = [decode(ToolCallRecord, one.value, one.headers) for one in told.outputs("tool-calls")]
    assert [one.request_id for one in calls] == ["r1", "r1"]
    assert {one.expires_at - one.created_at for one in calls} == {5000}
    assert told.turn is not None
    assert [call.id for call in told.turn.tool_calls or ()] == [one.tool_call_id for one in calls]
    assert len({one.tool_call_id for one in calls}) == 2


async def test_notices_show_the_beginning_of_long_results() -> None:
    told = await _called(result="x" * 2000)
    shown = [event.notice.details or {} for event in told.events if event.notice is not None]
    assert shown[0]["calls"][0]["name"] == "look_up"
    assert [one["content"] for one in shown[1]["results"]] == ["x" * 1000]


async def test_an_answer_that_is_resumed_anywhere_makes_no_call_twice() -> None:
    made: list[list[str]] = []

    async def run(partition: BenchPartition, before: Sequence[TokenEvent]) -> Told:
        known = {key for key, _ in partition.ownership.store.scan(Table.CALLS)}
        told = await _called(partition=partition, before=before)
        ids = [decode(ToolCallRecord, one.value, one.headers).tool_call_id for one in told.outputs("tool-calls")]
        assert len(ids) <= 2 - bool(known)
        assert told.turn is not None
        made.append([call.id for call in told.turn.tool_calls or ()])
        return told

    await same_at_every_cut(run)
    assert all(ids == made[0] for ids in made)


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.DEADLINE])
async def test_an_answer_that_is_stopped_while_it_waits_keeps_its_calls_with_a_result_each(
    reason: FinishReason,
) -> None:
    partition, inflights = BenchPartition(), list[InFlight]()

    def on_commit(commit: Commit) -> None:
        if commit.record is None:
            inflights[0].stop.now(reason)

    partition.on_commit = on_commit
    told = await _called(partition=partition, result=None, prepare=inflights.append)
    assert (told.end.finish_reason, told.end.index) == (reason, 3)
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == 3
    assert told.turn is not None
    assert told.row is not None
    assert len(told.turn.tool_calls or ()) == 1
    assert [step.content for step in told.row.steps if step.role == "tool"] == [CANCELLED]
    assert (told.row.answer, told.turn.answer) == ("", told.text)
    assert not told.open_calls
    assert partition.lent == 0


async def test_a_stopped_answer_that_its_next_owner_ends_has_the_figures_of_its_rounds() -> None:
    whole = await _called()
    log = whole.partition.ownership.token_log
    at = [event.notice.code for event in log.events if event.notice].index("tool_results")
    cut = [position for position, event in enumerate(log.events) if event.notice][at] + 1
    told = await _called(
        partition=BenchPartition(log.rows[cut]), before=log.events[:cut], prepare=stopped(), result=None
    )
    assert (told.end.finish_reason, told.end.index) == (FinishReason.CANCELLED, 3)
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == 3
    assert told.row is not None
    assert [step.role for step in told.row.steps] == ["assistant", "tool"]
    assert told.row.answer == ""


async def test_calls_without_a_result_time_out_and_the_answer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_rounds, "_READ_S", 0.001)
    one, partition = model(), BenchPartition()
    monkeypatch.setattr(partition.ownership.clock, "now", _clock())
    partition.context.topic_partition = lambda topic: (topic, 3)  # type: ignore[attr-defined]
    told = await _called(models=[one], partition=partition, result=None, tool_timeout_ms=10)
    assert told.end.index == 6
    assert all(TIMED_OUT in prompt for prompt in words_of(one).prompts[1:])
    assert told.notices == ["tool_calls", "tool_results"] * 2


def _clock() -> Any:
    """Each look at it is a second later."""
    now = [NOW]

    def clock() -> int:
        now[0] += 1000
        return now[0]

    return clock


async def test_results_are_read_by_the_guard_before_the_model_gets_them() -> None:
    one, finds, judges = model(), Finds(), Judges()
    features = guard(finds, judges, pii="mask", prompt={"bad": "block"})
    told = await _called(*features, models=[one], result=f"mail {EMAIL.value}")
    assert told.end.index == 6
    assert told.plan.private == (EMAIL,)
    assert not any(EMAIL.value in prompt for prompt in words_of(one).prompts)
    assert not any(EMAIL.value in text for text in judges.texts)
    assert told.row is not None
    assert told.row.private == (EMAIL,)


async def test_a_result_that_the_guard_blocks_ends_the_answer_and_is_not_kept() -> None:
    one = model()
    told = await _called(*guard(prompt={"bad": "block"}), models=[one], result="a bad result")
    assert (told.end.finish_reason, told.end.index) == (FinishReason.FILTERED, 3)
    assert told.notices == ["tool_calls", "tool_results", "plan", "filtered"]
    assert len(words_of(one).jobs) == 1
    assert told.row is not None
    assert not any("bad" in step.content for step in told.row.steps)
    assert "removed by the guard" in [step.content for step in told.row.steps]
    assert not told.open_calls


async def test_another_model_goes_on_behind_a_round() -> None:
    def before(job: Any, index: int) -> StreamEvent | None:
        return failing(0)(job, index) if b"sunny" in bytes(job.prompt) else None

    models = [model(before=before), model("small")]
    routes = routing(policy_of(fallback={"chain": ["default", "small"]}), models)
    told = await _called(routes, models=models)
    assert told.plans == [Plan(model="small", notice="fallback", from_index=3)]
    assert (told.end.index, told.end.model_version) == (6, "small@1")
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == 6


async def test_a_former_owners_calls_are_waited_for_and_not_made_again() -> None:
    whole = await _called()
    log = whole.partition.ownership.token_log
    rows = next(rows for rows in log.rows if any(row.table is Table.CALLS for row in rows))
    (row,) = (row for row in rows if row.table is Table.CALLS)
    rounds = records.decode_row(row.value or b"", ToolRounds)
    bare = msgspec.structs.replace(rounds, rounds=(msgspec.structs.replace(rounds.rounds[0], outcomes=()),))
    partition = BenchPartition()
    partition.put(Table.CALLS, bare, "ann", "r1")
    told = await _called(partition=partition, before=log.events[:3])
    assert len(told.outputs("tool-calls")) == 1
    assert told.text == whole.text


async def test_the_crowd_does_not_refuse_what_a_former_owner_has_admitted() -> None:
    partition = BenchPartition()
    partition.records.waiting = 1 << 20
    told = await _called(partition=partition, former=Former(plan=Plan(flagged=("odd",)), is_replayed=True))
    assert told.end.index == 6


@pytest.mark.parametrize("index", [0, 2])
async def test_an_answer_that_is_stopped_in_its_first_round_makes_no_call(index: int) -> None:
    before, prepare = stop_at(index)
    told = await _called(models=[model(before=before)], prepare=prepare)
    assert (told.end.finish_reason, told.end.index) == (FinishReason.CANCELLED, index)
    assert (told.outputs("tool-calls"), told.open_calls) == ([], False)
    assert told.turn is not None
    assert told.turn.tool_calls is None


async def test_the_calls_of_a_turn_that_is_not_stored_are_in_no_record_that_is_kept() -> None:
    told = await _called(store=False)
    assert told.turn is not None
    assert (told.turn.tool_calls, told.turn.answer, told.row) == (None, "", None)


async def test_decisions_about_results_are_forgotten_with_the_request() -> None:
    tools, partition = ToolsOverKafka(SETTINGS), BenchPartition()
    tool_results(partition, tools)
    await answered(tools, partition=partition, **CALLING)
    assert tools.calls_of(cast(Any, partition.ownership)).decided(("ann", "r1")) is None
