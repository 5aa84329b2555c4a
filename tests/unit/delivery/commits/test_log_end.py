"""A broker that is away leaves no consumer open at each sweep."""

from __future__ import annotations

from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError

from app.delivery.clients import Clients
from app.delivery.commits.log_end import LogEnd

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
