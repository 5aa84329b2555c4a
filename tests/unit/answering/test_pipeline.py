"""One answer, from its plan to its commit, without features of the policy."""

from __future__ import annotations

import asyncio
import dataclasses
import weakref
from collections.abc import Sequence
from functools import partialmethod
from typing import Any

import pytest

from app.answering.pipeline import Answering
from app.delivery.inflight import InFlight
from app.delivery.resume.quarantine import MOST_ATTEMPTS
from app.policy.file import Policy
from app.wire.event import ATTEMPT, IGNORED, EventType, Notice, TokenEvent
from app.wire.record_size import MAX_KEPT_BYTES
from models.interface.chat import ChatMessage, ModelCall
from models.interface.generation import End, FinishReason, Job, Stream, StreamEvent, Usage
from tables import records
from tables.records import Conversation, Erased, KeptTurn, Table
from tests.unit.answering.bench import ASKED_AT, NOW, BenchPartition, Told, answered, same_at_every_cut
from tests.unit.answering.word_engine import failing, model, saying, words_of
from tests.unit.features.stages.features import routing


async def _run(partition: BenchPartition, before: Sequence[TokenEvent], **fields: Any) -> Told:
    return await answered(partition=partition, before=before, **fields)


def _remembering(*turns: KeptTurn, erased_at: int = 0) -> BenchPartition:
    partition = BenchPartition()
    partition.put(Table.CONVERSATIONS, Conversation(turns[-1].at, turns, erased_at), "ann", "default")
    return partition


EARLIER = KeptTurn("r0", "how are you?", "well", ASKED_AT - 500)


async def test_an_answer_pauses_behind_tokens_that_others_follow_and_its_last_ones_leave_with_the_end() -> None:
    told = await answered(max_tokens=4)
    assert [event.type for event in told.events] == [EventType.TOKEN] * 4 + [EventType.DONE]
    assert told.partition.ownership.token_log.pauses == 3


async def test_an_answer_that_is_over_holds_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    one, held = model(), list[weakref.ref[Stream]]()
    submit = words_of(one).submit

    def submitted(jobs: Sequence[Job]) -> list[Stream]:
        streams = submit(jobs)
        held.extend(map(weakref.ref, streams))
        return streams

    monkeypatch.setattr(words_of(one), "submit", submitted)
    monkeypatch.setattr(Answering, "__init__", partialmethod(_kept, kept := list[Answering](), Answering.__init__))
    await answered(models=[one])
    assert len(kept) == len(held) == 1
    await asyncio.sleep(0.01)  # the loop closes what was not read to its end
    assert held[0]() is None, "an engine whose streams are held counts as busy, and does not leave"


def _kept(answering: Answering, kept: list[Answering], begin: Any, *parts: Any) -> None:
    begin(answering, *parts)
    kept.append(answering)


def _conversation(told: Told) -> Conversation:
    raw = told.partition.ownership.store.get(Table.CONVERSATIONS, records.key("ann", "default"))
    assert raw is not None
    return records.decode_row(raw, Conversation)


async def test_an_answer_has_its_words_one_end_a_turn_and_a_row() -> None:
    told = await answered()
    assert told.end.finish_reason is FinishReason.LENGTH
    assert told.turn is not None
    assert told.row is not None
    assert told.turn.answer == told.row.answer == told.text
    assert (told.notices, told.end.index) == ([], 6)
    assert told.partition.ownership.store.get(Table.ENDED, records.key("ann", "r1")) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"logprobs": True, "top_logprobs": 0},
        {"prompt": None, "messages": [{"role": "user", "content": "why?"}], "keep_context": True},
        {"raw": True},
        {"store": False},
    ],
    ids=["plain", "logprobs", "messages", "raw", "not stored"],
)
async def test_an_answer_that_is_resumed_at_any_event_is_the_same(fields: dict[str, Any]) -> None:
    await same_at_every_cut(lambda partition, before: _run(partition, before, **fields))


async def test_an_answer_that_goes_on_says_so_once() -> None:
    whole = await answered()
    told = await answered(before=whole.events[:2])
    assert told.notices == [ATTEMPT, "resumed"]
    assert [event.index for event in told.events if event.type is EventType.TOKEN] == [2, 3, 4, 5]


async def test_readers_are_told_where_a_models_server_goes_on_with_other_words() -> None:
    one = model()
    words_of(one).redraws_at = 3
    told = await answered(models=[one])
    (notice,) = [event for event in told.events if event.notice is not None]
    assert notice.notice is not None
    assert (notice.notice.code, notice.notice.details, notice.index) == ("resumed", {"redraws": True}, 3)
    assert notice.notice.message.startswith("the model's server was lost")
    assert told.text == (await answered()).text


async def test_what_the_server_of_a_model_filters_is_said_to_be_of_its_filter() -> None:
    def before(job: Job, index: int) -> StreamEvent | None:
        return End(2, FinishReason.FILTERED, Usage(len(job.prompt), 2)) if index == 2 else None

    told = await answered(models=[model(before=before)])
    (notice,) = [event.notice for event in told.events if event.notice is not None]
    assert (notice.code, notice.details) == ("filtered", {"category": "outside"})
    assert (told.end.finish_reason, told.end.index) == (FinishReason.FILTERED, 2)


async def test_an_answer_with_an_end_is_committed_and_nothing_is_written_again() -> None:
    whole, one = await answered(), model()
    told = await answered(models=[one], before=whole.events)
    assert (told.events, words_of(one).jobs) == ([], [])
    assert told.facts == whole.facts


async def test_the_prompt_has_the_turns_before_it_and_the_row_is_added_behind_them() -> None:
    one = model()
    told = await answered(models=[one], partition=_remembering(EARLIER))
    prompt = words_of(one).prompts[0]
    assert prompt.index("how are you?") < prompt.index("well") < prompt.index("why?")
    assert [turn.request_id for turn in _conversation(told).turns] == ["r0", "r1"]


async def test_a_request_with_its_whole_context_reads_no_memory() -> None:
    one = model()
    messages = [{"role": "user", "content": "why?"}]
    told = await answered(models=[one], partition=_remembering(EARLIER), prompt=None, messages=messages)
    assert "well" not in words_of(one).prompts[0]
    assert [turn.request_id for turn in _conversation(told).turns] == ["r0", "r1"]


async def test_what_an_erasure_has_not_deleted_yet_is_not_read_and_the_row_names_the_erasure() -> None:
    one, partition = model(), _remembering(EARLIER)
    partition.put(Table.ERASED, Erased(ASKED_AT - 100, applied=ASKED_AT - 50), "ann")
    told = await answered(models=[one], partition=partition)
    assert "well" not in words_of(one).prompts[0]
    assert (_conversation(told).erased_at, len(_conversation(told).turns)) == (ASKED_AT - 100, 1)


@pytest.mark.parametrize("whole_context", [False, True])
@pytest.mark.parametrize("comes", ["never", "while it waits", "while it is answered"])
@pytest.mark.parametrize("row_has_met_it", [False, True])
async def test_what_was_said_before_an_erasure_is_forgotten_and_what_came_later_is_not(
    whole_context: bool, comes: str, row_has_met_it: bool
) -> None:
    """The erasure is older than the request; the conversation's row was written before its mark, or behind it."""
    at = ASKED_AT - 100
    partition = _remembering(EARLIER, erased_at=at * row_has_met_it)
    if row_has_met_it:
        partition.put(Table.ERASED, Erased(at, applied=at + 10), "ann")

    def erase(*_: object) -> None:
        if comes != "never" and not row_has_met_it:
            partition.put(Table.ERASED, Erased(at, applied=NOW), "ann")

    how: dict[str, Any] = {"prompt": None, "messages": [{"role": "user", "content": "why?"}]} if whole_context else {}
    if comes == "while it waits":
        erase()
    told = await answered(
        models=[model(before=erase)] if comes == "while it is answered" else (), partition=partition, **how
    )
    assert told.turn is not None
    is_hidden = comes != "never" and not row_has_met_it
    quotes = is_hidden and comes == "while it is answered" and not whole_context
    assert (bool(told.turn.prompt), bool(told.turn.answer)) == (not quotes, not quotes)
    rows = [turn.request_id for turn in _conversation(told).turns]
    assert rows == (["r0"] if quotes else ["r1"] if is_hidden else ["r0", "r1"])


async def test_what_a_former_owner_wrote_before_an_erasure_is_not_kept() -> None:
    """Its prompt had what was erased; the erasure comes while the answer waits to be resumed."""
    whole = await answered(partition=_remembering(EARLIER))
    partition = _remembering(EARLIER)

    def erase(_inflight: InFlight) -> None:
        partition.put(Table.ERASED, Erased(ASKED_AT - 100, applied=NOW), "ann")

    told = await answered(before=whole.events[:2], partition=partition, prepare=erase)
    assert told.turn is not None
    assert (told.turn.prompt, told.turn.answer) == ("", "")
    assert [turn.request_id for turn in _conversation(told).turns] == ["r0"]


async def test_a_result_keeps_its_call_if_an_erasure_has_met_neither() -> None:
    call = ChatMessage("assistant", "", calls=(ModelCall("f", "{}", "c1"),))
    asked = KeptTurn("r0", "look it up", "", ASKED_AT - 50, steps=(call,))
    partition = _remembering(asked, erased_at=ASKED_AT - 100)
    partition.put(Table.ERASED, Erased(ASKED_AT - 100, applied=NOW), "ann")
    results = [{"tool_call_id": "c1", "content": "it is 7"}]
    told = await answered(partition=partition, prompt=None, tool_results=results)
    (turn,) = _conversation(told).turns
    assert (turn.prompt, [step.role for step in turn.steps]) == ("look it up", ["assistant", "tool"])


@pytest.mark.parametrize(
    ("fields", "has_texts", "is_remembered"), [({"store": False}, False, False), ({"raw": True}, True, False)]
)
async def test_what_is_not_remembered(fields: dict[str, Any], has_texts: bool, is_remembered: bool) -> None:
    told = await answered(**fields)
    assert told.turn is not None
    assert (bool(told.turn.answer), told.row is not None) == (has_texts, is_remembered)


async def test_the_sender_is_told_of_fields_that_a_request_does_not_know() -> None:
    def misspell(inflight: InFlight) -> None:
        inflight.accepted = dataclasses.replace(inflight.accepted, ignored=("max_toks (did you mean max_tokens?)",))

    told = await answered(prepare=misspell)
    (notice,) = [event.notice for event in told.events if event.notice is not None and event.notice.code == IGNORED]
    assert notice.message == "max_toks (did you mean max_tokens?): no field of a request, so it has no effect"
    assert notice.details == {"fields": ["max_toks (did you mean max_tokens?)"]}
    assert told.events[0].notice == notice, "before the first token"
    assert IGNORED not in {event.notice.code for event in (await answered()).events if event.notice is not None}


async def test_the_question_of_an_answer_without_words_is_remembered() -> None:
    told = await answered(models=[model(says=saying())])
    assert told.turn is not None
    assert (told.turn.answer, told.end.finish_reason) == ("", FinishReason.STOP)
    assert [(turn.prompt, turn.answer, turn.steps) for turn in _conversation(told).turns[-1:]] == [("why?", "", ())]


async def test_a_request_of_which_no_record_could_hold_the_turn_is_refused_before_a_model_reads_it() -> None:
    one = model()
    told = await answered(models=[one], prompt="x" * (MAX_KEPT_BYTES + 1))
    assert (told.code, words_of(one).jobs, told.notices) == ("prompt_too_long", [], [])
    assert told.end.error is not None
    assert told.end.error.message.startswith("the turn has ")
    assert str(MAX_KEPT_BYTES) in told.end.error.message


async def test_an_answer_ends_before_its_turn_is_too_large_for_a_record() -> None:
    told = await answered(models=[model(says=saying(*["w" * 300_000] * 5))])
    assert told.end.finish_reason is FinishReason.LENGTH
    assert 0 < told.end.index < 5
    assert told.turn is not None
    assert told.turn.answer == told.text
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == told.end.index


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({"previous_request_id": "r7"}, "previous_request_id: "),
        ({"prompt": None, "tool_results": [{"tool_call_id": "c", "content": ""}]}, "tool_results: "),
    ],
)
async def test_a_request_that_does_not_fit_its_conversation_is_refused(fields: dict[str, Any], start: str) -> None:
    one = model()
    told = await answered(models=[one], **fields)
    assert (told.code, words_of(one).jobs, told.turn) == ("invalid_request", [], None)
    assert told.end.error is not None
    assert told.end.error.message.startswith(start)


async def test_a_prompt_that_is_another_now_ends_the_answer_as_partial() -> None:
    whole = await answered(partition=_remembering(EARLIER))
    one = model()
    told = await answered(models=[one], before=whole.events[:2], partition=BenchPartition())
    assert (told.end.finish_reason, told.end.index, words_of(one).jobs) == (FinishReason.PARTIAL, 2, [])
    assert told.end.usage is not None
    assert told.end.usage.completion_tokens == 2


def _attempt(number: int, index: int = 0) -> TokenEvent:
    notice = Notice(ATTEMPT, "the request is tried again", {"attempt": number})
    return TokenEvent(
        type=EventType.NOTICE, request_id="r1", user_id="ann", conversation_id="default", index=index, notice=notice,
        timestamp=NOW - 3_600_000,
    )  # fmt: skip


async def test_an_attempt_is_recorded_before_anything_else_and_its_index_is_that_of_the_next_token() -> None:
    whole = await answered()
    assert ATTEMPT not in whole.notices  # nobody had begun it
    for count in (0, 2):
        told = await answered(before=(_attempt(1, count), *whole.events[:count]))
        first = told.events[0]
        assert first.notice is not None
        assert (first.notice.code, first.notice.details, first.index) == (ATTEMPT, {"attempt": 2}, count)
        assert told.text == whole.text


async def test_a_request_that_has_cost_too_many_workers_is_quarantined() -> None:
    one = model()
    told = await answered(models=[one], before=[_attempt(MOST_ATTEMPTS)])
    assert (told.code, words_of(one).jobs, told.notices) == ("engine_error", [], [])
    assert (told.letters, told.turn, told.row) == (["engine_error"], None, None)


async def test_progress_sets_the_count_of_attempts_back() -> None:
    whole = await answered()
    told = await answered(before=(_attempt(MOST_ATTEMPTS), *whole.events[:1]))
    assert told.text == whole.text
    assert told.events[0].notice is not None
    assert told.events[0].notice.details == {"attempt": 1}


async def test_a_quarantined_request_is_one_whatever_else_is_true_of_it() -> None:
    def stop(inflight: InFlight) -> None:
        inflight.stop.now(FinishReason.CANCELLED)

    told = await answered(before=[_attempt(MOST_ATTEMPTS)], prepare=stop)
    assert (told.code, told.letters) == ("engine_error", ["engine_error"])


async def test_an_attempt_behind_a_failure_counts_from_its_own_token() -> None:
    one = model(before=failing(2, times=1))
    told = await answered(routing(Policy(), [one]), models=[one], before=[_attempt(1)])
    attempts = [event for event in told.events if event.notice is not None and event.notice.code == ATTEMPT]
    assert [(one.index, one.notice and one.notice.details) for one in attempts] == [
        (0, {"attempt": 2}), (2, {"attempt": 1}),
    ]  # fmt: skip


async def test_what_waits_for_the_commit_is_called_behind_it() -> None:
    partition = BenchPartition()
    committed: list[int] = []

    def wait(inflight: InFlight) -> None:
        inflight.on_commit.append(lambda: committed.append(len(partition.commits)))

    await answered(partition=partition, prepare=wait)
    assert committed == [1]
