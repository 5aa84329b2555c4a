"""Recovery of partial answers: the tokens topic is the write-ahead log of generation.

A new owner writes its fence first and reads up to it, by the reader rule. Readers accept exactly the events before the
fence; they drop an event of a former owner behind it, because its epoch is lower. Owner and readers therefore agree
without communication. Notices are read by the same rule: the decisions about an answer (`plan`), and its attempts
(`attempt`).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.delivery.accepted import REPLAYED, Former, RequestKey
from app.delivery.resume.quarantine import Attempt
from app.kafka.reading import cause_of
from app.reader.rule import Answer, ReaderRule
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.event import PLAN, WAITING, EventType, Notice, Plan, TokenEvent
from tables.asleep import WaitKind

FindSlept = Callable[[RequestKey], Answer | None]


class LostFenceError(KafkaError):
    """The fence is gone; the partition has to be taken over again."""


def with_notice(former: Former, notice: Notice, index: int, at: int) -> Former:
    """With what a notice of the token `index` says, which was written `at` Unix milliseconds."""
    if attempt := Attempt.of(notice, index, at):
        return dataclasses.replace(former, attempt=attempt)
    if notice.code == PLAN and notice.details is not None:
        return dataclasses.replace(former, plan=msgspec.convert(notice.details, Plan))
    return former


def _is_of_timer(notice: Notice | None) -> bool:
    """Whether it says that a request waits for its time. Such a request is not admitted yet."""
    return notice is not None and notice.code == WAITING and (notice.details or {}).get("kind") == WaitKind.TIMER


class _Slept(dict[RequestKey, int]):
    """Up to which index rows have the answers that have slept and that the log knows, too."""

    def unknown_of(self, rule: ReaderRule, event: TokenEvent, slept: FindSlept) -> TokenEvent:
        """The event, or its epoch alone if rows have its tokens. The first one of an answer adopts what they have."""
        key = (event.user_id or "", event.request_id or "")
        if event.user_id is not None and key not in rule.answers and (answer := slept(key)) is not None:
            rule.adopt(answer)
            self[key] = answer.position
        is_in_rows = event.type is EventType.TOKEN and (event.index or 0) < self.get(key, 0)
        is_known = is_in_rows or _is_of_timer(event.notice)
        return TokenEvent(type=EventType.TOKEN, epoch=event.epoch) if is_known else event


async def recover(
    reader: AIOKafkaConsumer,
    topic_partition: TopicPartition,
    *,
    start: int,
    floor: int,
    fence: int,
    slept: FindSlept = lambda _key: None,
) -> dict[RequestKey, Former]:
    """What the log holds of requests that may be unfinished: reads `tokens` from the offset `start` up to the own
    `fence`; `floor` is the newest epoch that began before `start`.

    An answer that began before `start` was finished by then, or has slept since; its remaining events are skipped, or
    follow what its rows have of it (`slept`), which is all up to their position.

    Raises:
        LostFenceError: the log has lost its tail since the fence was written.
    """
    recovered: dict[RequestKey, Former] = {}
    rule = ReaderRule(remember=sys.maxsize)
    of_rows = _Slept()
    # A reader that saw the fence before `start` has already dropped events of older epochs.
    rule.epochs[topic_partition.partition] = floor
    reader.assign([topic_partition])
    earliest = (await reader.beginning_offsets([topic_partition]))[topic_partition]
    reader.seek(topic_partition, max(start, earliest))
    while await reader.position(topic_partition) < fence:
        batches = await reader.getmany(topic_partition, timeout_ms=200)
        if not batches and (await reader.end_offsets([topic_partition]))[topic_partition] <= fence:
            raise LostFenceError(f"{topic_partition.topic}[{topic_partition.partition}] has lost the fence at {fence}")
        for record in batches.get(topic_partition, ()):
            if record.offset >= fence:
                break
            if cause_of(record):
                continue
            try:
                event = of_rows.unknown_of(rule, decode(TokenEvent, record.value, record.headers), slept)
                update = rule.read(record.partition, record.offset, event)
                if update is not None and event.notice is not None:
                    key = (update.answer.user_id, update.answer.request_id)
                    former = recovered.get(key, REPLAYED)
                    former = with_notice(former, event.notice, event.index or 0, event.timestamp or 0)
                    if former is not REPLAYED:
                        recovered[key] = former
            except (WireError, msgspec.ValidationError):
                continue  # not written by a worker; readers skip it too
    for key, answer in rule.answers.items():
        if answer.epoch >= 0 and not answer.missing:
            recovered[key] = dataclasses.replace(recovered.get(key, REPLAYED), answer=answer)
    return recovered
