from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.answering.dialogue import kept_bytes
from app.answering.kept import commit_of
from app.features.tool_rounds import ToolsOverKafka
from app.wire.event import NO_PLAN
from app.wire.record_size import MAX_QUESTION_BYTES
from app.wire.tools import ToolMode
from models.interface.chat import ModelCall
from tables import records
from tables.tool_calls import ToolOutcome, ToolRound, ToolRounds, fits
from tests.unit.answering.runs import run_and_stage_of
from tests.unit.answering.sizes import NOW, USAGE, answered, as_long_as, check, formats, letters, many, settings_of
from tests.unit.delivery.fake_partition import FakePartition
from tests.unit.delivery.inflight_requests import ASKED_AT, inflight_of


@given(letter=letters, share=st.floats(0, 1), wire_format=formats)
@many
async def test_a_turn_after_rounds_of_calls_fits(letter: str, share: float, wire_format: str) -> None:
    given_settings = settings_of(wire_format)
    inflight = inflight_of(prompt=as_long_as(letter, int(share * MAX_QUESTION_BYTES)), tool_mode=ToolMode.KAFKA)
    size = kept_bytes(inflight.accepted, (), NO_PLAN)
    rounds, content = ToolRounds(ASKED_AT), as_long_as(letter, 60_000)
    while True:
        number = len(rounds.rounds)
        calls = tuple(ModelCall("look_up", '{"word":"w"}', f"c{number}-{at}") for at in range(3))
        one = ToolRound(number, "", calls, USAGE, NOW, NOW, tuple(ToolOutcome(call.id, content) for call in calls))
        if not fits(rounds.asked(one), size):
            break
        rounds = rounds.asked(one)
    partition = FakePartition()
    partition.put(records.Table.CALLS, rounds, *inflight.key)
    run, stage = run_and_stage_of(
        ToolsOverKafka(given_settings), inflight=inflight, partition=partition, settings=given_settings
    )
    run.answer.keep_room(size)
    end = await answered(run, letter)
    commit = commit_of(run, [stage.leave], end, NOW)
    check(commit, given_settings)
    assert commit.outputs[0].topic == "turns"
    assert any(row.table is records.Table.CONVERSATIONS and row.value for row in commit.changes)
