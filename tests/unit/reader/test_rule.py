"""The reader rule against every order in which owners, successors and zombies can write."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.reader import ReaderRule, Update
from app.wire.event import EventType, TokenEvent
from tests.examples import examples
from tests.unit.reader.logs import REQUESTS, USER, Partition, partitions


def read(partition: Partition, start: int = 0) -> tuple[ReaderRule, list[Update]]:
    rule = ReaderRule()
    updates = [rule.read(0, offset, event) for offset, event in partition.log if offset >= start]
    return rule, [update for update in updates if update is not None]


@given(partition=partitions())
def test_reader_from_the_start_has_every_token_once_and_never_takes_one_back(partition: Partition) -> None:
    rule, updates = read(partition)
    assert all(update.cut is None and update.gap == 0 for update in updates)
    for request in REQUESTS:
        reported = [token for u in updates if u.answer.request_id == request for token in u.event.tokens or ()]
        assert reported == partition.truth[request]
        answer = rule.answers.get((USER, request))
        assert reported == list(answer.tokens if answer else ())
        assert answer is None or answer.missing == ()


@given(partition=partitions())
def test_reader_from_the_start_is_told_each_end_once(partition: Partition) -> None:
    rule, updates = read(partition)
    for request in REQUESTS:
        ends = [u.event for u in updates if u.answer.request_id == request and u.event.is_end]
        assert ends == ([partition.true_ends[request]] if request in partition.true_ends else [])
        assert not ends or rule.answers[USER, request].complete


@examples(5)
@given(partition=partitions(), data=st.data())
def test_reader_that_begins_anywhere_ends_with_the_answers_rest(partition: Partition, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, partition.next_offset))
    rule, _ = read(partition, start)
    for request, last in partition.last_true.items():
        if last < start:
            continue  # the whole answer was given before this reader came
        answer = rule.answers[USER, request]
        begin = min([len(partition.truth[request]), *(segment.index or 0 for segment in answer.segments)])
        # Sampling is keyed by (seed, index): a zombie's token is that of the answer, here with a mark.
        assert [token % 1000 for token in answer.tokens] == partition.truth[request][begin:]
        assert answer.end == partition.true_ends.get(request)
        assert answer.missing == (((0, begin),) if begin else ())


@given(partition=partitions(), data=st.data())
def test_updates_shown_as_they_come_show_the_answer(partition: Partition, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, partition.next_offset))
    rule = ReaderRule()
    screen = dict.fromkeys(REQUESTS, "")
    for offset, event in partition.log:
        if offset >= start and (update := rule.read(0, offset, event)):
            request = update.answer.request_id
            screen[request] = update.answer.text if update.cut is not None else screen[request] + update.text
    assert screen == {r: a.text if (a := rule.answers.get((USER, r))) else "" for r in REQUESTS}


def token(index: int, epoch: int | None = 0, **fields: Any) -> TokenEvent:
    about: dict[str, Any] = {"request_id": "r", "user_id": USER, "tokens": (index,), "text": str(index)}
    return TokenEvent(type=EventType.TOKEN, index=index, epoch=epoch, **(about | fields))


def test_partitions_have_epochs_of_their_own() -> None:
    rule = ReaderRule()
    assert rule.read(0, 9, token(0, epoch=9, request_id="a"))
    assert rule.read(1, 3, token(0, epoch=2, request_id="b"))
    assert rule.read(0, 10, token(0, epoch=2, request_id="c")) is None
    assert rule.dropped.late == 1


def test_two_users_with_the_same_request_id_have_two_answers() -> None:
    rule = ReaderRule()
    rule.read(0, 1, token(0))
    rule.read(0, 2, token(0, user_id="bob"))
    assert set(rule.answers) == {(USER, "r"), ("bob", "r")}


def test_gap_is_told_and_remembered() -> None:
    rule = ReaderRule()
    rule.read(0, 1, token(0))
    update = rule.read(0, 2, token(3))
    assert update is not None
    assert (update.cut, update.gap, update.answer.missing) == (None, 2, ((1, 3),))


def test_gap_behind_a_late_end_takes_all_back_that_a_former_owner_said() -> None:
    rule = ReaderRule()
    rule.read(0, 11, token(4, epoch=1))  # two zombies, one after the other; the fence stands before this reader's start
    done = TokenEvent(type=EventType.DONE, index=5, epoch=2, user_id=USER, request_id="r")
    rule.read(0, 12, done)
    update = rule.read(0, 13, token(6, epoch=9))
    assert update is not None
    assert (update.cut, update.gap, update.answer.tokens, update.answer.end) == (0, 6, (6,), None)


def test_word_that_begins_within_a_late_one_takes_all_back_that_a_former_owner_said() -> None:
    rule = ReaderRule()
    rule.read(0, 9, token(3, epoch=1))
    rule.read(0, 10, token(4, epoch=1, tokens=(4, 5)))
    update = rule.read(0, 11, token(5, epoch=6))
    assert update is not None
    assert (update.cut, update.gap, update.answer.tokens) == (0, 5, (5,))


def test_notice_passes_and_changes_no_answer() -> None:
    rule = ReaderRule()
    notice = TokenEvent(type=EventType.NOTICE, request_id="r", user_id=USER, epoch=0)
    update = rule.read(0, 1, notice)
    assert update is not None
    assert (update.event, update.answer.text, update.answer.end) == (notice, "", None)


def test_event_without_epoch_index_or_request_is_counted_as_unusable() -> None:
    rule = ReaderRule()
    bad = [token(0, epoch=None), token(0, request_id=None), token(0, user_id=None)]
    bad.append(TokenEvent(type=EventType.DONE, request_id="r", user_id=USER, epoch=0))
    assert [rule.read(0, 1, event) for event in bad] == [None] * 4
    assert rule.dropped.unusable == 4


def test_only_the_last_ended_answers_are_kept() -> None:
    rule = ReaderRule(remember=2)
    for number in range(4):
        rule.read(0, number, token(0, request_id=f"r{number}"))
        done = TokenEvent(type=EventType.DONE, index=1, epoch=0, user_id=USER, request_id=f"r{number}")
        rule.read(0, number, done)
    rule.read(0, 9, token(0, request_id="open"))
    assert [request for _, request in rule.answers] == ["r2", "r3", "open"]
