from __future__ import annotations

from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from app.delivery import follower
from app.delivery.commits.commit import LostError
from app.delivery.follower import TopicTask, follow

AT = TopicPartition("turns", 3)
FIRST, END = 5, 8


class Reader:
    """A consumer of one partition, which has the offsets from `FIRST` to `END`."""

    open = 0

    async def start(self) -> None:
        Reader.open += 1

    async def stop(self) -> None:
        Reader.open -= 1

    def assign(self, partitions: list[TopicPartition]) -> None:
        assert partitions == [AT]

    async def beginning_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {AT: FIRST}

    async def end_offsets(self, _: object) -> dict[TopicPartition, int]:
        return {AT: END}

    def seek(self, at: TopicPartition, offset: int) -> None:
        assert at == AT
        self._position = offset

    async def position(self, _: TopicPartition) -> int:
        return self._position

    async def getmany(self, at: TopicPartition, *, timeout_ms: int) -> dict[TopicPartition, list[int]]:
        if self._position == END:
            return {}
        self._position += 1
        return {at: [self._position - 1]}


class Reading:
    """Reads to the end, and raises the next of `errors` after the first record."""

    def __init__(self, *errors: Exception, start: int = 0) -> None:
        self._errors = list(errors)
        self.next = start
        self.offsets: list[Any] = []

    async def read(self, topic: TopicTask) -> None:
        while self.next < await topic.end():
            records, position = await topic.poll(wait_ms=10)
            self.offsets += records
            if self._errors:
                raise self._errors.pop(0)
            self.next = position

    async def follow(self) -> None:
        await follow(AT, cast(Any, Reader), lambda: self.next, self.read)


async def test_reads_from_the_start_or_the_first_record_that_is_left() -> None:
    for start, offsets in ((0, [5, 6, 7]), (6, [6, 7])):
        reading = Reading(start=start)
        await reading.follow()
        assert reading.offsets == offsets
        assert Reader.open == 0


async def test_after_an_error_it_begins_again_at_what_is_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follower, "_RETRY_S", 0.0)
    reading = Reading(ValueError("secret"), OSError(), start=6)
    await reading.follow()
    assert reading.offsets == [6, 6, 6, 7]
    assert Reader.open == 0
    assert "partition 3 of turns: ValueError in " in caplog.text
    assert "secret" not in caplog.text


async def test_the_end_of_an_ownership_is_no_error_of_the_topic() -> None:
    reading = Reading(LostError())
    with pytest.raises(LostError):
        await reading.follow()
    assert reading.offsets == [5]
    assert Reader.open == 0
