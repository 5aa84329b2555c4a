"""What was already said of unfinished requests: the tokens topic as the write-ahead log of generation.

A new owner writes its fence first and reads up to it, by the reader rule. What stands before the fence is what readers
accept as said; a former owner's event behind it is of a lower epoch and dropped by everyone. So both agree, without
talking.
"""

from __future__ import annotations

import sys

from aiokafka import AIOKafkaConsumer, TopicPartition

from app.reader.answer import Answer
from app.reader.rule import ReaderRule
from app.wire.codec import decode_token_event
from app.wire.error import WireError

RequestKey = tuple[str, str]
"""(user_id, request_id): a request's identity."""


async def read_said(
    reader: AIOKafkaConsumer, topic_partition: TopicPartition, *, start: int, floor: int, fence: int
) -> dict[RequestKey, Answer]:
    """Read `tokens` from offset `start` up to the own `fence`; `floor` is the newest epoch that began before `start`.

    An answer that began before `start` was finished by then; the rest of such a one is left out.
    """
    rule = ReaderRule(remember=sys.maxsize)
    # What is of older epochs came too late already for those who saw the fence before `start`.
    rule.epochs[topic_partition.partition] = floor
    reader.assign([topic_partition])
    earliest = (await reader.beginning_offsets([topic_partition]))[topic_partition]
    reader.seek(topic_partition, max(start, earliest))
    while await reader.position(topic_partition) < fence:
        batches = await reader.getmany(topic_partition, timeout_ms=200)
        for record in batches.get(topic_partition, ()):
            if record.offset >= fence:
                break
            try:
                event = decode_token_event(record.value, record.headers)
            except WireError:
                continue  # not written by a worker; readers leave it out too
            rule.read(record.partition, record.offset, event)
    return {key: answer for key, answer in rule.answers.items() if answer.epoch >= 0 and not answer.missing}
