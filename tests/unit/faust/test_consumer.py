"""Where the group's consumer goes after a rebalance."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from app.faust.arrivals import Arrivals
from app.faust.consumer import _ConsumerInLoop

FIRST = 40
COMMITTED, AT_ZERO, UNCOMMITTED, NEW = (TopicPartition("requests", number) for number in range(4))
OFFSETS = {COMMITTED: 70, AT_ZERO: 0}


class Consumer:
    """aiokafka's, whose group has committed `OFFSETS`. `during` happens while it asks for them."""

    def __init__(self) -> None:
        self.assigned = {COMMITTED, AT_ZERO, UNCOMMITTED}
        self.positions: dict[TopicPartition, int] = {}
        self.during: Any = lambda: None
        self.asked: list[set[TopicPartition]] = []
        self.paused: set[TopicPartition] = set()
        self._coordinator = self

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.assigned)

    async def fetch_committed_offsets(self, partitions: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        self.asked.append(set(partitions))
        await asyncio.sleep(0)
        self.during()
        return {at: OffsetAndMetadata(OFFSETS[at], "") for at in partitions if at in OFFSETS}

    async def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        await asyncio.sleep(0)
        return dict.fromkeys(partitions, FIRST)

    def seek(self, at: TopicPartition, offset: int) -> None:
        assert at in self.assigned
        self.positions[at] = offset

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= set(partitions)


def go_back(consumer: Consumer) -> tuple[Any, Arrivals]:
    arrivals = Arrivals(10.0)
    arrivals.assign()
    app = SimpleNamespace(arrivals=arrivals, unread=frozenset({"turns"}))
    thread = SimpleNamespace(_ensure_consumer=lambda: consumer, app=app)
    return asyncio.run(_ConsumerInLoop.seek_to_committed(thread)), arrivals  # type: ignore[arg-type]


def test_every_partition_goes_to_its_committed_offset_or_its_first_record_and_is_asked_for_once() -> None:
    consumer = Consumer()
    offsets, arrivals = go_back(consumer)
    assert consumer.positions == offsets == {COMMITTED: 70, AT_ZERO: 0, UNCOMMITTED: FIRST}
    assert consumer.asked == [{COMMITTED, AT_ZERO, UNCOMMITTED}]
    for at, offset in offsets.items():
        arrivals.fetched(at, [offset])
        assert arrivals.passes(at, offset, 0.0)


def test_what_the_group_moves_meanwhile_is_left_alone_or_asked_for() -> None:
    consumer = Consumer()
    consumer.during = lambda: setattr(consumer, "assigned", {COMMITTED, NEW})
    offsets, arrivals = go_back(consumer)
    assert consumer.positions == offsets == {COMMITTED: 70, NEW: FIRST}
    arrivals.fetched(AT_ZERO, [0])
    assert not arrivals.passes(AT_ZERO, 0, 0.0)


def test_a_topic_that_nothing_reads_is_assigned_and_not_fetched() -> None:
    consumer, turns = Consumer(), TopicPartition("turns", 0)
    consumer.assigned.add(turns)
    offsets, _ = go_back(consumer)
    assert offsets[turns] == consumer.positions[turns] == FIRST
    assert consumer.paused == {turns}
