"""What a request's prompt is built from, and what its turn remembers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from app.answering.dialogue import (
    DialogueError,
    before_of,
    beginning_of,
    check_dialogue,
    ended_in,
    memory_of,
    past_turns_of,
    question_of,
    steps_of,
)
from app.delivery.accepted import Accepted
from app.wire.request import Message, Request, Role
from app.wire.tools import FunctionCall, MessageToolCall, ToolResult
from models.interface.chat import ChatMessage, ModelCall
from tables.conversations import MemoryRules
from tables.records import Conversation, KeptTurn

CALL = ModelCall("order_status", "{}", "c1")
PENDING = KeptTurn("r1", "Where is it?", "", 1, steps=(ChatMessage("assistant", "", calls=(CALL,)),))
RULES = MemoryRules(turns=10, ttl_ms=1000)


def request(**fields: object) -> Request:
    return Request(request_id="r2", user_id="u", **fields)  # type: ignore[arg-type]


def turn(request_id: str, **fields: object) -> KeptTurn:
    return KeptTurn(request_id, f"ask {request_id}", f"answer {request_id}", 1, **fields)  # type: ignore[arg-type]


def test_results_continue_the_turn_that_asked_for_them() -> None:
    asked = request(tool_results=(ToolResult("c1", "packed"),))
    memory = (turn("r0"), PENDING)
    check_dialogue(asked, memory)
    assert question_of(asked, memory) == "Where is it?"
    assert [past.prompt for past in past_turns_of(asked, memory)] == ["ask r0"]
    assert steps_of(asked, memory) == (*PENDING.steps, ChatMessage("tool", "packed", call_id="c1"))


@pytest.mark.parametrize("memory", [(), (turn("r0"),), (PENDING, turn("r2"))])
def test_results_of_a_call_that_is_not_open_are_refused(memory: tuple[KeptTurn, ...]) -> None:
    with pytest.raises(DialogueError, match="no open call c1"):
        check_dialogue(request(tool_results=(ToolResult("c1", "packed"),)), memory)


def test_a_predecessor_that_is_not_remembered_is_refused() -> None:
    with pytest.raises(DialogueError, match="no turn of r0"):
        check_dialogue(request(prompt="x", previous_request_id="r0"), ())


def test_steps_of_messages_are_those_behind_the_last_one_of_the_user() -> None:
    call = MessageToolCall("c1", FunctionCall("order_status"))
    messages = (
        Message(Role.SYSTEM, "be kind"), Message(Role.USER, "Hi"), Message(Role.ASSISTANT, "Hello"),
        Message(Role.USER, "Where?"), Message(Role.ASSISTANT, tool_calls=(call,)),
        Message(Role.TOOL, "packed", tool_call_id="c1"),
    )  # fmt: skip
    asked = request(messages=messages)
    assert question_of(asked, ()) == "Where?"
    assert [step.role for step in steps_of(asked, ())] == ["assistant", "tool"]
    assert before_of(asked) == ()
    kept = request(messages=messages, keep_context=True)
    assert [message.content for message in before_of(kept)] == ["Hi", "Hello"]


def test_a_continued_message_is_the_beginning_of_the_answer_and_no_step() -> None:
    messages = (Message(Role.USER, "Where?"), Message(Role.ASSISTANT, "It is"))
    asked = request(messages=messages, continue_final_message=True)
    assert (steps_of(asked, ()), beginning_of(asked)) == ((), "It is")


def test_a_turn_that_contains_an_earlier_ones_calls_replaces_it() -> None:
    steps = (*PENDING.steps, ChatMessage("tool", "packed", call_id="c1"))
    before = Conversation(1, (turn("r0"), PENDING))
    after = RULES.remember(before, KeptTurn("r2", PENDING.prompt, "It is packed.", 2, steps=steps), 2)
    assert [one.request_id for one in after.turns] == ["r0", "r2"]
    only_results = RULES.remember(before, KeptTurn("r2", "", "It is packed.", 2, steps=steps[1:]), 2)
    assert [one.request_id for one in only_results.turns] == ["r0", "r1", "r2"]


def test_branches_of_a_conversation_do_not_see_each_other() -> None:
    turns = (turn("a"), turn("b"), turn("c", after="a"), turn("d", after="c"), turn("e", after="b"))
    talk = Conversation(1, turns)
    assert [one.request_id for one in RULES.visible(talk, 1)] == ["a", "b", "c", "d", "e"]
    assert [one.request_id for one in RULES.visible(talk, 1, "d")] == ["a", "c", "d"]
    assert [one.request_id for one in RULES.visible(talk, 1, "e")] == ["a", "b", "e"]
    assert RULES.visible(talk, 1, "z") == ()


def test_a_turn_that_ends_in_calls_has_them_as_its_last_step() -> None:
    steps = ended_in((), "One moment.", (CALL,))
    assert steps == (ChatMessage("assistant", "One moment.", calls=(CALL,)),)
    assert KeptTurn("r", "q", "", 1, steps=steps).open_calls == {"c1"}
    assert KeptTurn("r", "q", "a", 1, steps=steps).open_calls == frozenset()


HI = (Message(Role.USER, "Hi"),)


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"prompt": "Hi"}, 2),
        ({"messages": HI}, 0),
        ({"messages": HI, "continue_conversation": True}, 2),
        ({"messages": HI, "previous_request_id": "r0"}, 1),
        ({"messages": HI, "previous_request_id": "r0", "continue_conversation": True}, 1),
        ({"prompt": "Hi", "raw": True, "continue_conversation": True}, 0),
        ({"prompt_token_ids": (1,), "continue_conversation": True}, 0),
    ],
)
def test_a_request_sees_its_conversation_unless_it_brings_all_of_it(fields: dict[str, object], seen: int) -> None:
    accepted = SimpleNamespace(request=request(**fields), at=2)
    conversation = Conversation(1, (turn("r0"), turn("r1")))
    assert len(memory_of(cast(Accepted, accepted), conversation, RULES)) == seen
