"""Up to where all requests are answered, and where the log ends."""

from __future__ import annotations

from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st

from app.delivery.clients import Clients
from app.delivery.commits.positions import LogEnd, Watermark

AT = TopicPartition("requests", 0)


class Reader:
    """Starts unless the broker is away, and knows one end."""

    def __init__(self, *, is_away: bool) -> None:
        self.is_away = is_away
        self.is_open = False

    async def start(self) -> None:
        self.is_open = True
        if self.is_away:
            raise KafkaConnectionError("away")

    async def stop(self) -> None:
        self.is_open = False

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 7)


class Readers:
    def __init__(self) -> None:
        self.is_away = True
        self.made: list[Reader] = []

    def end_reader(self) -> AIOKafkaConsumer:
        self.made.append(Reader(is_away=self.is_away))
        return cast(Any, self.made[-1])


async def test_a_consumer_that_cannot_start_is_stopped_and_the_next_sweep_makes_another() -> None:
    readers = Readers()
    log_end = LogEnd(cast(Clients, readers))
    for _ in range(3):
        assert await log_end.of(AT, 9) is None
    assert [one.is_open for one in readers.made] == [False] * 3
    readers.is_away = False
    assert await log_end.of(AT, 9) == 7
    assert [one.is_open for one in readers.made] == [False] * 3 + [True]
    await log_end.stop()
    assert not readers.made[-1].is_open


def test_watermark_is_unknown_until_everything_before_a_noted_end_is_finished() -> None:
    watermark = Watermark()
    watermark.note(1000, end=5)
    assert watermark.advance(4) is None
    assert watermark.advance(5) == 1000


def test_watermark_stays_where_requests_are_unfinished() -> None:
    watermark = Watermark()
    for second in range(10):
        watermark.note(second * 1000, end=second)
        watermark.advance(min(second, 3))
    assert watermark.at == 3000
    assert watermark.advance(9) == 9000


def test_watermark_goes_on_after_a_long_backlog() -> None:
    watermark = Watermark()
    for second in range(10_000):
        watermark.note(second, end=second)
    assert watermark.advance(10_000) is not None
    watermark.note(20_000, end=10_001)
    assert watermark.advance(10_001) == 20_000


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=60))
def test_no_unfinished_request_was_appended_before_the_watermark(steps: list[tuple[int, int, bool]]) -> None:
    """Requests are appended one a tick; finished in order, some ticks later; the end is noted now and then."""
    watermark, appended, head = Watermark(), [], 0
    for now, (new, done, is_noted) in enumerate(steps):
        if is_noted:
            watermark.note(now, len(appended))
        appended += [now] * new
        head = min(len(appended), head + done)
        at = watermark.advance(head)
        assert at is None or all(time >= at for time in appended[head:])
