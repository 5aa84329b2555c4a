"""Where in its partitions a reader begins."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition


class Edge(enum.Enum):
    BEGINNING = "beginning"
    END = "end"


@dataclass(frozen=True, slots=True)
class AtTime:
    """At the first record that is not older than that time, in Unix milliseconds."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """At the given offset of each partition; at the end of the others."""

    offsets: Mapping[int, int]


Position = Edge | AtTime | AtOffsets


async def seek(consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition], position: Position) -> None:
    """Determine the position before anything is read or sent: nothing written after this call is missed."""
    if position is Edge.BEGINNING:
        offsets = await consumer.beginning_offsets(partitions)
    else:
        offsets = await consumer.end_offsets(partitions)
    if isinstance(position, AtTime):
        starts = await consumer.offsets_for_times(dict.fromkeys(partitions, position.timestamp))
        offsets |= {partition: at.offset for partition, at in starts.items() if at is not None}
    if isinstance(position, AtOffsets):
        offsets |= {p: position.offsets[p.partition] for p in partitions if p.partition in position.offsets}
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)
