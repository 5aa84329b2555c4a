"""A reader's place in an answer that grows, ends and is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from app.gateway.answers.live import LiveAnswers, LiveObserver
from app.gateway.answers.watch import BATCH, Deadline
from app.reader import Update
from app.wire.codec import encode
from app.wire.event import EventType, Logprob, Notice, TokenEvent
from models.interface.generation import FinishReason
from tables.erasures import Scope
from tests.virtual_time import in_virtual_time


class Record:
    def __init__(self, offset: int, event: TokenEvent) -> None:
        self.partition, self.offset = 0, offset
        self.value, self.headers = encode(event)


class Observer(LiveObserver):
    def __init__(self) -> None:
        self.on_update: Callable[[Update], object] = lambda _: None

    def answer_grew(self, update: Update) -> None:
        self.on_update(update)


class Log:
    """A `tokens` partition that goes straight into the live memory."""

    def __init__(self, most_events: int = 100_000, most_bytes: int = 1 << 30) -> None:
        self.erased: dict[str, int] = {}
        self.observer = Observer()
        self.live = LiveAnswers(
            [],
            "tokens",
            1,
            lambda user, _conversation: self.erased.get(user, 0),
            most_events=most_events,
            most_bytes=most_bytes,
            observer=self.observer,
        )
        self.live._reads_since[0] = 0.0
        self.offset = 0

    def write(
        self, kind: EventType, index: int | None = None, epoch: int = 0, request: str = "r", **how: object
    ) -> None:
        event = TokenEvent(type=kind, request_id=request, user_id="nina", index=index, epoch=epoch, **how)
        self.live._read_record(Record(self.offset, event))
        self.live._trim()
        self.offset += 1

    def say(self, index: int, epoch: int = 0, request: str = "r") -> None:
        self.write(EventType.TOKEN, index, epoch, request, tokens=(index,), text=f"{epoch}.{index} ")

    def erase(self, user_id: str, at: int) -> None:
        self.erased[user_id] = at
        self.live.drop(Scope(user_id), at)

    def end(self, index: int, epoch: int = 0, request: str = "r") -> None:
        self.write(EventType.DONE, index, epoch, request, finish_reason=FinishReason.STOP)


def test_a_first_event_without_tokens_is_an_event() -> None:
    log = Log()
    with log.live.watch("nina", "r") as watch:
        log.write(EventType.TOKEN, 0, tokens=(), text="", prompt_logprobs=(Logprob(1, "a", -1.0),))
        assert [event.prompt_logprobs is not None for event in watch.next_events()] == [True]
        assert watch.next_events() == []
        log.end(0)
        assert [event.type for event in watch.next_events()] == ["done"]


def test_each_event_is_taken_once_and_the_end_last() -> None:
    log = Log()
    with log.live.watch("nina", "r") as watch:
        log.say(0)
        log.say(1)
        assert [event.index for event in watch.next_events()] == [0, 1]
        assert watch.next_events() == []
        log.say(2)
        log.end(3)
        assert [event.type for event in watch.next_events()] == ["token", "done"]
        assert watch.ended


def test_a_long_answer_comes_in_bounded_batches() -> None:
    log = Log()
    for index in range(2 * BATCH + 1):
        log.say(index)
    log.end(2 * BATCH + 1)
    with log.live.watch("nina", "r") as watch:
        assert [len(watch.next_events()) for _ in range(3)] == [BATCH, BATCH, 2]
        assert watch.ended


def test_a_cut_is_said_anew_from_where_it_was_cut() -> None:
    log = Log()
    with log.live.watch("nina", "r") as watch:
        for index in range(4):
            log.say(index)
        watch.next_events()
        log.say(2, epoch=7)
        assert [(event.epoch, event.index) for event in watch.next_events()] == [(7, 2)]


def test_notices_come_to_those_who_are_there_alone() -> None:
    log = Log()
    with log.live.watch("nina", "r") as there:
        log.write(EventType.NOTICE, 0, notice=Notice("resumed", "it goes on"))
        assert [event.type for event in there.next_events()] == ["notice"]
        with log.live.watch("nina", "r") as later:
            assert later.next_events() == []


def test_that_an_answer_waits_comes_last_and_to_those_who_come_later() -> None:
    log = Log()
    with log.live.watch("nina", "r") as there:
        log.write(EventType.NOTICE, 1, notice=Notice("waiting", "it waits", {"kind": "tool", "wait_id": "one"}))
        log.say(0)
        log.write(EventType.NOTICE, 1, notice=Notice("waiting", "it waits", {"kind": "tool", "wait_id": "two"}))
        assert [event.type for event in there.next_events()] == ["token", "notice"]
        assert there.next_events() == []
        with log.live.watch("nina", "r") as later:
            later.position = 1
            assert [event.notice and event.notice.details for event in later.next_events()] == [
                {"kind": "tool", "wait_id": "two"}
            ]
        log.write(EventType.NOTICE, 1, notice=Notice("woken", "it goes on"))
        with log.live.watch("nina", "r") as later:
            later.position = 1
            assert later.next_events() == []
        assert [event.notice and event.notice.code for event in there.next_events()] == ["woken"]


@pytest.mark.parametrize("code", ["superseded", "steered"])
def test_what_another_request_has_done_comes_before_the_end_to_those_who_come_later_too(code: str) -> None:
    log = Log()
    log.say(0)
    with log.live.watch("nina", "r") as there:
        log.write(EventType.NOTICE, 1, notice=Notice(code, "it ends", {"by": "s"}))
        log.write(EventType.DONE, 1, finish_reason=FinishReason.CANCELLED)
        with log.live.watch("nina", "r") as late:
            for watch in (there, late):
                codes = [event.notice and event.notice.code for event in watch.next_events()]
                assert sorted(map(str, codes)) == ["None", "None", code]
                assert watch.ended
            assert codes == [None, code, None]


def test_memory_is_bounded_and_what_is_read_stays() -> None:
    log = Log(most_events=50)
    with log.live.watch("nina", "kept") as watch:
        log.say(0, request="kept")
        for number in range(100):
            log.say(0, request=f"r{number}")
            log.end(1, request=f"r{number}")
        assert log.live.held.events <= 50
        assert len(watch.next_events()) == 1
    assert ("nina", "r99") in log.live.rule.answers
    assert ("nina", "r0") not in log.live.rule.answers
    assert log.live.complete_since("nina") > 0


def test_memory_is_bounded_in_bytes_too() -> None:
    log = Log(most_bytes=1_000_000)
    for number in range(20):
        log.write(EventType.TOKEN, 0, request=f"r{number}", tokens=(0,), text="\U0001f600" + "x" * 30_000)
        log.end(1, request=f"r{number}")
        assert log.live.held.bytes <= 1_000_000
    assert [request for _, request in log.live.rule.answers] == [f"r{number}" for number in range(12, 20)]


def test_the_counted_size_is_that_of_what_is_held() -> None:
    log = Log()
    for index in range(5):
        log.say(index)
    log.write(EventType.NOTICE, 2, epoch=1, notice=Notice("resumed", "it goes on"))
    log.say(2, epoch=1)
    log.end(3, epoch=1)
    assert log.live.held.events == 4
    log.live.drop(Scope("nina"))
    assert (log.live.held.events, log.live.held.bytes) == (0, 0)


def test_what_an_erased_user_was_told_is_forgotten_while_it_is_read() -> None:
    log = Log()
    with log.live.watch("nina", "r") as watch:
        log.say(0)
        watch.next_events()
        log.live.drop(Scope("nina"))
        assert watch.answer is None
        log.say(1)
        log.end(2)
        assert [event.index for event in watch.next_events()] == [1, 2]
        assert watch.ended
    assert log.live.rule.answers["nina", "r"].text == "0.1 "


def test_words_older_than_an_erasure_are_forgotten_whichever_comes_first() -> None:
    log = Log()
    log.write(EventType.TOKEN, 0, request="before", tokens=(0,), text="a secret", timestamp=1000)
    log.write(EventType.TOKEN, 0, request="after", tokens=(0,), text="hello", timestamp=3000)
    log.erase("nina", at=2000)
    log.write(EventType.TOKEN, 0, request="late", tokens=(0,), text="another secret", timestamp=1999)
    assert [request for _, request in log.live.rule.answers] == ["after"]


def test_an_erasure_of_a_conversation_drops_its_answers_alone() -> None:
    log = Log()
    for name in ("a", "b"):
        log.write(EventType.TOKEN, 0, request=name, tokens=(0,), text="x", timestamp=1000, conversation_id=name)
    log.live.drop(Scope("nina", "a"), 2000)
    assert [request for _, request in log.live.rule.answers] == ["b"]


def test_an_end_older_than_an_erasure_still_counts_as_one() -> None:
    log, ends = Log(), []
    log.observer.on_update = lambda update: ends.append(update.event.is_end)
    log.erase("nina", at=2000)
    log.write(EventType.DONE, 0, request="late", finish_reason=FinishReason.STOP, timestamp=1999)
    assert ends == [True]
    assert not log.live.rule.answers


async def test_watch_waits_for_a_change_or_the_time_and_keeps_one_timer() -> None:
    log = Log()
    with log.live.watch("nina", "r") as watch:
        assert not await watch.changed(0.01)
        log.say(0)
        assert await watch.changed(10)
        asyncio.get_running_loop().call_later(0.02, log.say, 1)
        assert await watch.changed(10)
        assert not await watch.changed(0.01)
        assert not await watch.changed(0.03)


def test_dropping_old_answers_does_not_change_since_when_a_partition_is_read() -> None:
    log = Log(most_events=5)
    for number in range(20):
        log.say(0, request=f"r{number}")
        log.end(1, request=f"r{number}")
    assert log.live.reads_since("nina") == 0.0
    assert log.live.complete_since("nina") > 0.0


def test_a_record_that_is_read_again_counts_once() -> None:
    """A partition that left and came back is read from a minute before its end."""
    log = Log()
    counted: list[int | None] = []
    log.observer.on_update = lambda update: counted.append(update.event.index)
    log.say(0)
    log.say(1)
    log.live._drop({0})
    log.offset = 0
    for index in range(3):
        log.say(index)
    assert counted == [0, 1, 2]


def test_no_record_stops_the_reader_of_others(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()

    def fail(_: object) -> None:
        raise KeyError("the prompt")

    log.observer.on_update = fail
    log.say(0)
    log.observer.on_update = lambda _: None
    hostile = Record(log.offset, TokenEvent(type=EventType.TOKEN))
    hostile.value = b'{"type": "token", "index": ' + b"9" * 5000 + b"}"
    log.live._read_record(hostile)
    log.offset += 1
    with log.live.watch("nina", "r2") as watch:
        log.say(0, request="r2")
        assert [event.index for event in watch.next_events()] == [0]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "the prompt" not in caplog.text


@in_virtual_time
async def test_a_deadline_passes_once_for_a_write_that_takes_too_long() -> None:
    rings: list[int] = []
    timer = Deadline(lambda: rings.append(1))
    timer.set(0.02)
    await asyncio.sleep(0.1)
    assert (rings, timer.has_passed) == ([1], True)


@in_virtual_time
async def test_a_deadline_counts_each_write_alone_and_no_pause_between_them() -> None:
    timer = Deadline(lambda: None)
    for _ in range(4):
        timer.set(0.05)
        await asyncio.sleep(0.02)
        timer.clear()
    await asyncio.sleep(0.1)
    timer.set(0.05)
    timer.clear()
    await asyncio.sleep(0.1)
    assert not timer.has_passed
    timer.close()


@in_virtual_time
async def test_a_deadline_notices_a_late_write_after_quick_ones() -> None:
    timer = Deadline(lambda: None)
    timer.set(0.05)
    timer.clear()
    await asyncio.sleep(0.04)
    timer.set(0.05)
    await asyncio.sleep(0.2)
    assert timer.has_passed


@in_virtual_time
async def test_a_deadline_that_is_set_earlier_passes_earlier() -> None:
    timer = Deadline(lambda: None)
    timer.set(60)
    timer.set(0.01)
    await asyncio.sleep(0.1)
    assert timer.has_passed
