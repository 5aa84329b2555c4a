from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from app.answering.dialogue import past_turns_of
from app.answering.kept import commit_of, refusal_of
from app.answering.run import Run
from app.delivery.accepted import Former
from app.delivery.inflight import InFlight
from app.delivery.record import REQUESTS, Record
from app.settings import Settings
from app.wire.codec import decode
from app.wire.dead_letters import cause_from
from app.wire.error import ErrorCode, WireError
from app.wire.event import EventType, TokenEvent
from app.wire.turn import Turn
from models.interface.chat import ChatMessage
from models.interface.generation import Delta, End, FinishReason, Usage
from tables import records
from tables.conversations import MemoryRules
from tables.erasures import Scope
from tables.records import Conversation, Erased, KeptTurn, Table
from tests.unit.answering.runs import run_of
from tests.unit.delivery.fake_partition import FakeLog, FakePartition
from tests.unit.delivery.inflight_requests import ASKED_AT, answer_with, inflight_of

SETTINGS = Settings(_env_file=None, topic_prefix="x-")
NOW = ASKED_AT + 5000
RULES = MemoryRules(turns=2, ttl_ms=10**15)


def run_with(inflight: InFlight, log: FakeLog | None = None, conversation: Conversation | None = None) -> Run:
    partition = FakePartition()
    partition.ownership.token_log = log or FakeLog()
    run = run_of(inflight=inflight, partition=partition, settings=SETTINGS, rules=RULES)
    run.conversation = conversation
    return run


async def answered(run: Run) -> TokenEvent:
    await run.answer.write(Delta(run.answer.index, (7,), "word"))
    return await run.answer.done(End(1, FinishReason.LENGTH, Usage(3, 1)))


async def test_a_done_request_leaves_a_turn_its_memory_and_its_id() -> None:
    run = run_with(inflight_of(tenant="acme"))
    commit = commit_of(run, (), await answered(run), NOW)
    assert commit.record is run.accepted.record
    assert [change.table for change in commit.changes] == [Table.CONVERSATIONS, Table.ENDED]
    remembered = records.decode_row(cast(bytes, commit.changes[0].value), Conversation)
    (output,) = commit.outputs
    turn = decode(Turn, output.value, output.headers)
    assert output.topic == "x-turns"
    assert [(t.request_id, t.prompt, t.answer) for t in remembered.turns] == [("r1", "why?", "word")]
    assert (turn.answer, turn.prompt, turn.finish_reason, turn.tenant) == ("word", "why?", FinishReason.LENGTH, "acme")
    assert turn.timing is not None
    assert turn.timing.requested_at == ASKED_AT


async def test_a_resumed_answer_has_all_its_words_once() -> None:
    log = FakeLog()
    run = run_with(inflight_of(Former(answer_with("one ", "two "))), log)
    await run.answer.write(Delta(2, (9,), "three"))
    end = await run.answer.done(End(3, FinishReason.STOP, Usage(1, 3), " held back"))
    assert [event.index for event in log.events] == [2, 3]
    commit = commit_of(run, (), end, NOW)
    assert decode(Turn, commit.outputs[0].value).answer == "one two three held back"


async def test_only_the_first_event_carries_the_digest_of_the_prompt() -> None:
    log = FakeLog()
    answer = run_with(inflight_of(), log).answer
    answer.prompt_digest = "d"
    await answer.write(Delta(0, (1,), "a"))
    await answer.write(Delta(1, (2,), "b"))
    assert [event.prompt_digest for event in log.events] == ["d", None]


async def test_an_error_leaves_its_id_alone() -> None:
    run = run_with(inflight_of())
    end = await run.answer.error(ErrorCode.DEADLINE_EXCEEDED, "too late")
    commit = commit_of(run, (), end, NOW)
    assert [change.table for change in commit.changes] == [Table.ENDED]
    assert commit.outputs == ()


async def test_an_erased_user_leaves_a_turn_without_text_and_no_memory() -> None:
    run = run_with(inflight_of())
    end = await answered(run)
    mark = Erased(ASKED_AT, applied=NOW)
    with run.partition.ownership.marks.deciding(Scope("ann"), mark):
        commit = commit_of(run, (), end, NOW)
    turn = decode(Turn, commit.outputs[0].value)
    assert (turn.prompt, turn.answer) == ("", "")
    assert [change.table for change in commit.changes] == [Table.ENDED]


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.CANCELLED, FinishReason.DEADLINE])
async def test_the_question_of_an_answer_that_was_cut_before_its_text_is_remembered(reason: FinishReason) -> None:
    run = run_with(inflight_of())
    await run.answer.write(Delta(0, (7,), "", reasoning="Hm"))
    commit = commit_of(run, (), await run.answer.done(End(1, reason, Usage(3, 1))), NOW)
    (turn,) = records.decode_row(cast(bytes, commit.changes[0].value), Conversation).turns
    assert (turn.request_id, turn.prompt, turn.answer, turn.open_calls) == ("r1", "why?", "", frozenset())
    (past,) = past_turns_of(run.accepted.request, (turn,))
    assert past.messages == [ChatMessage("user", "why?")], "templates may refuse an assistant's message without text"


@pytest.mark.parametrize("reason", [FinishReason.CANCELLED, FinishReason.DEADLINE, FinishReason.FILTERED])
async def test_an_answer_that_never_began_is_a_turn_but_no_memory(reason: FinishReason) -> None:
    run = run_with(inflight_of())
    end = await run.answer.done(End(0, reason, Usage(0, 0)))
    commit = commit_of(run, (), end, NOW)
    assert [change.table for change in commit.changes] == [Table.ENDED]
    assert len(commit.outputs) == 1


async def test_memory_grows_on_what_was_there_and_keeps_its_length() -> None:
    before = Conversation(1, (KeptTurn("a", "p", "q", 0), KeptTurn("b", "p", "q", 1)))
    run = run_with(inflight_of(), conversation=before)
    commit = commit_of(run, (), await answered(run), NOW)
    remembered = records.decode_row(cast(bytes, commit.changes[0].value), Conversation)
    assert [turn.request_id for turn in remembered.turns] == ["b", "r1"]


async def test_an_end_waits_for_the_delivery_of_every_event_before_it() -> None:
    deliveries: list[asyncio.Future[Any]] = []

    class Slow(FakeLog):
        async def send(self, event: TokenEvent, _key: bytes | None, _headers: object = ()) -> asyncio.Future[Any]:
            deliveries.append(asyncio.get_running_loop().create_future())
            return deliveries[-1]

    answer = run_with(inflight_of(), Slow()).answer
    await answer.write(Delta(0, (1,), "a"))
    end = asyncio.ensure_future(answer.done(End(1, FinishReason.STOP, Usage(1, 1))))
    await asyncio.sleep(0)
    deliveries[1].set_result(None)
    await asyncio.sleep(0)
    assert not end.done()
    deliveries[0].set_result(None)
    assert (await end).type is EventType.DONE


BAD = Record(REQUESTS, 3, 42, ASKED_AT, b"ann", b"{", (("trace", b"1"),))


def test_a_bad_record_becomes_a_dead_letter_with_its_cause_and_its_sender_is_told() -> None:
    error = WireError(ErrorCode.INVALID_REQUEST, "broken", request_id="r9", user_id="bob")
    commit, event = refusal_of(BAD, error, known=False, settings=SETTINGS, now=NOW)
    (letter,) = commit.outputs
    cause = cause_from(list(letter.headers))
    assert cause is not None
    assert (letter.key, letter.value, ("trace", b"1") in letter.headers) == (b"ann", b"{", True)
    assert (cause.topic, cause.partition, cause.offset) == ("x-requests", 3, 42)
    assert event is not None
    assert (event.user_id, event.request_id) == ("ann", "r9")
    assert [change.table for change in commit.changes] == [Table.ENDED]


@pytest.mark.parametrize(("request_id", "known"), [("r9", True), (None, False)])
def test_nobody_is_told_of_a_bad_record_whose_id_is_known_or_unreadable(request_id: str | None, known: bool) -> None:
    error = WireError(ErrorCode.INVALID_REQUEST, "broken", request_id=request_id)
    commit, event = refusal_of(BAD, error, known=known, settings=SETTINGS, now=NOW)
    assert event is None
    assert commit.changes == ()
    assert len(commit.outputs) == 1


def test_a_prompt_that_is_only_too_long_is_no_dead_letter() -> None:
    error = WireError(ErrorCode.PROMPT_TOO_LONG, "long", request_id="r9")
    commit, event = refusal_of(BAD, error, known=False, settings=SETTINGS, now=NOW)
    assert commit.outputs == ()
    assert event is not None
