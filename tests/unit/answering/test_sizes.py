"""Whatever a request brings within its limits, no record that it leaves is larger than a record can be.

Sizes are those of the batches that aiokafka builds, which the broker compares with `max.message.bytes`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.dialogue import kept_bytes
from app.answering.kept import commit_of, refusal_of
from app.delivery import dead_letters
from app.delivery.record import REQUESTS, Record
from app.private.value import PrivateValue
from app.wire.error import ErrorCode, WireError
from app.wire.event import NO_PLAN, Plan
from app.wire.record_size import MAX_KEPT_BYTES, MAX_QUESTION_BYTES, MAX_RECORD_BYTES
from app.wire.request import Message
from app.wire.tools import ToolResult
from models.interface.chat import ChatMessage, ModelCall
from models.interface.generation import Delta, End, FinishReason
from tables import records
from tables.conversations import MemoryRules
from tables.records import Conversation, KeptTurn
from tests.unit.answering.runs import run_of
from tests.unit.answering.sizes import (
    LETTERS,
    NOW,
    USAGE,
    answered,
    as_long_as,
    check,
    formats,
    letters,
    many,
    settings_of,
)
from tests.unit.delivery.fake_partition import FakePartition
from tests.unit.delivery.inflight_requests import ASKED_AT, inflight_of


@given(
    letter=letters, share=st.floats(0, 1), context=st.floats(0, 1), private=st.integers(0, 1000), wire_format=formats
)
@many
async def test_a_turn_with_all_at_its_limits_fits(
    letter: str, share: float, context: float, private: int, wire_format: str
) -> None:
    prompt = as_long_as(letter, int(share * MAX_QUESTION_BYTES))
    messages = (
        Message("user", as_long_as(letter, int(context * MAX_QUESTION_BYTES))),
        Message("assistant", "yes"),
        Message("user", prompt),
    )
    name = as_long_as(letter, 700)[:128]
    inflight = inflight_of(
        prompt=None, messages=messages, keep_context=True, user_id=name, conversation_id=name, tenant=name[:64]
    )
    values = tuple(PrivateValue("EMAIL_ADDRESS", f"{number:0150}") for number in range(private))
    given_settings = settings_of(wire_format)
    run = run_of(inflight=inflight, settings=given_settings)
    run.answer.plan = Plan(model="m" * 64, route="r" * 64, experiment="e" * 64, arm="a" * 64, private=values)
    size = kept_bytes(run.accepted, (), run.answer.plan)
    if size > MAX_KEPT_BYTES:
        return  # refused before the first token
    run.answer.keep_room(size)
    end = await answered(run, letter, calls=128)
    commit = commit_of(run, (), end, NOW)
    check(commit, given_settings)
    assert len(commit.changes) == 2, "it is remembered"
    check(
        dead_letters.commit_of_unexpected(run.accepted.record, ValueError("why" * 300), given_settings), given_settings
    )


@pytest.mark.parametrize("wire_format", ["json", "protobuf"])
@pytest.mark.parametrize("letter", LETTERS)
async def test_results_that_make_a_turn_too_long_end_it_before_its_first_token(letter: str, wire_format: str) -> None:
    """Each request adds results to the same turn, until one is refused; what was kept until then fits."""
    conversation, given_settings, accepted = None, settings_of(wire_format), 0
    for number in range(60):
        results = (ToolResult(f"c{number - 1}", letter * (65536 // len(letter.encode()))),) if number else None
        values: dict[str, Any] = {"prompt": None if number else "go", "tool_results": results}
        partition = FakePartition()
        if conversation is not None:
            partition.put(records.Table.CONVERSATIONS, conversation, "ann", "default")
        inflight = inflight_of(request_id=f"r{number}", at=NOW, **values)
        run = run_of(inflight=inflight, partition=partition, settings=given_settings)
        size = kept_bytes(run.accepted, run.memory, NO_PLAN)
        if size > MAX_KEPT_BYTES:
            break
        run.answer.keep_room(size)
        end = await run.answer.done(End(0, FinishReason.TOOL_CALLS, USAGE, calls=(ModelCall("f", "{}", ""),)))
        call = ModelCall("f", "{}", f"c{number}")
        commit = commit_of(run, (), end, NOW)
        check(commit, given_settings)
        row = records.decode_row(commit.changes[0].value or b"", Conversation)
        steps = (*row.turns[-1].steps[:-1], ChatMessage("assistant", "", calls=(call,)))
        turns = (*row.turns[:-1], msgspec.structs.replace(row.turns[-1], steps=steps))
        conversation = Conversation(NOW, turns)
        accepted += 1
    assert 1 <= accepted < 60


async def test_a_conversation_that_no_record_can_hold_costs_the_memory_and_not_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    past = Conversation(NOW, (KeptTurn("r0", "\x01" * 200_000, "", NOW),))
    rules = MemoryRules(turns=1, ttl_ms=10**15)
    commits = []
    for prompt in ("why?", "\x01" * 200_000):
        run = run_of(inflight=inflight_of(prompt=prompt), settings=settings_of("json"), rules=rules)
        run.conversation = past
        await run.answer.write(Delta(0, (1,), "word"))
        commits.append(commit_of(run, (), await run.answer.done(End(0, FinishReason.STOP, USAGE)), NOW))
    kept, reduced = commits
    assert len(kept.changes) == 2
    assert [row.table for row in reduced.changes] == [records.Table.ENDED]
    assert [output.topic for output in reduced.outputs] == ["turns"]
    assert "not remembered" in caplog.text


@given(
    key=st.none() | st.sampled_from([b"\xff" * 900_000, b"\x01" * 900_000, b"ann"]),
    value=st.none() | st.sampled_from([b"\x00" * (MAX_RECORD_BYTES - 2000), b"{}"]),
    headers=st.sampled_from([(), tuple((f"h{number}", b"v" * 1000) for number in range(900))]),
    letter=letters,
    wire_format=formats,
)
@many
def test_what_a_refused_record_leaves_fits(
    key: bytes | None, value: bytes | None, headers: Any, letter: str, wire_format: str
) -> None:
    name = as_long_as(letter, 700)[:128]
    record = Record(REQUESTS, 3, 42, ASKED_AT, key, value, headers)
    error = WireError(
        ErrorCode.INVALID_REQUEST, letter * 100_000, request_id="r" * 64, user_id=name, conversation_id=name
    )
    given_settings = settings_of(wire_format)
    check(refusal_of(record, error, known=False, settings=given_settings, now=NOW)[0], given_settings)
