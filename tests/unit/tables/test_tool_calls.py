"""The rounds of an answer with tools over Kafka."""

from __future__ import annotations

from models.interface.chat import ModelCall
from models.interface.generation import Usage
from tables.records import Table, decode_row, encode
from tables.tool_calls import MAX_ROUNDS_BYTES, MAX_ROW_BYTES, ToolOutcome, ToolRound, ToolRounds, fits, row


def round_of(end: int, text: str, *calls: str) -> ToolRound:
    made = tuple(ModelCall("look_up", "{}", call) for call in calls)
    return ToolRound(end, text, made, Usage(10, end, 3), asked_at=1000, expires_at=2000)


TWO = ToolRounds(at=5).asked(round_of(4, "Let me see.", "a", "b")).asked(round_of(9, "", "c"))


def test_texts_calls_and_usage_are_those_of_all_rounds() -> None:
    assert (TWO.end, TWO.text, TWO.asked_at) == (9, "Let me see.", 1000)
    assert [call.id for call in TWO.calls] == ["a", "b", "c"]
    assert TWO.usage == Usage(20, 9, 6)
    assert (ToolRounds().end, ToolRounds().text, ToolRounds().missing) == (0, "", ())


def test_results_stand_behind_their_calls_in_the_order_of_the_calls() -> None:
    rounds = ToolRounds().asked(round_of(4, "", "a", "b"))
    rounds = rounds.answered(ToolOutcome("b", "second")).answered(ToolOutcome("a", "first"))
    assert rounds.missing == ()
    assert [(step.role, step.content, step.call_id) for step in rounds.steps] == [
        ("assistant", "", ""),
        ("tool", "first", "a"),
        ("tool", "second", "b"),
    ]


def test_what_is_missing_can_be_filled_in() -> None:
    assert [call.id for call in TWO.missing] == ["c"]
    assert TWO.without_results("none").rounds[-1].outcomes == (ToolOutcome("c", "none"),)
    assert TWO.without_results("none").rounds[0] == TWO.rounds[0]


def test_an_answer_that_lost_tokens_stands_before_the_rounds_that_they_belong_to() -> None:
    assert [len(TWO.until(index).rounds) for index in (0, 3, 4, 8, 9)] == [0, 0, 1, 1, 2]


def test_a_row_is_read_as_it_was_written_and_has_a_limit() -> None:
    change = row("ann", "r1", TWO)
    assert change.table is Table.CALLS
    assert change.value is not None
    assert decode_row(change.value, ToolRounds) == TWO
    assert row("ann", "r1", None).value is None
    assert fits(TWO, 0)
    assert not fits(TWO.answered(ToolOutcome("c", "x" * MAX_ROW_BYTES)), 0)


def test_what_stands_beside_the_rounds_takes_room_in_the_turns_row() -> None:
    room = MAX_ROUNDS_BYTES - len(encode(TWO))
    assert fits(TWO, room)
    assert not fits(TWO, room + 1)
