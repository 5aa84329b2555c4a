"""Recovery of partial answers: the tokens topic is the write-ahead log of generation.

A new owner writes its fence first and reads up to it, by the reader rule. Readers accept exactly the events before the
fence; they drop an event of a former owner behind it, because its epoch is lower. Owner and readers therefore agree
without communication. Notices are read by the same rule: the decisions about an answer (`plan`), and its attempts
(`attempt`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from app.delivery.resume.quarantine import Attempt
from app.kafka.reading import cause_of
from app.reader.answer import Answer
from app.reader.rule import ReaderRule
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.event import PLAN, Notice, Plan, TokenEvent

RequestKey = tuple[str, str]
"""(user_id, request_id): a request's identity."""


class LostFenceError(KafkaError):
    """The fence is gone; the partition has to be taken over again."""


@dataclass(frozen=True, slots=True)
class RecoveredAnswers:
    """What the log holds of requests that may be unfinished."""

    answers: dict[RequestKey, Answer] = field(default_factory=dict)
    plans: dict[RequestKey, Plan] = field(default_factory=dict)
    attempts: dict[RequestKey, Attempt] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.answers or self.plans or self.attempts)

    def has(self, key: RequestKey) -> bool:
        return any(key in table for table in (self.answers, self.plans, self.attempts))

    def forget(self, key: RequestKey) -> None:
        for table in (self.answers, self.plans, self.attempts):
            table.pop(key, None)

    def clear(self) -> None:
        for table in (self.answers, self.plans, self.attempts):
            table.clear()

    @property
    def requests(self) -> set[RequestKey]:
        return self.answers.keys() | self.plans.keys() | self.attempts.keys()

    @property
    def unfinished(self) -> int:
        """How many answers have begun and not ended."""
        return sum(bool(one.segments) and one.end is None for one in self.answers.values())

    def note(self, key: RequestKey, notice: Notice, index: int, at: int = 0) -> None:
        """Remember a notice of the token `index`, written `at` Unix milliseconds."""
        if attempt := Attempt.of(notice, index, at):
            self.attempts[key] = attempt
        elif notice.code == PLAN and notice.details is not None:
            self.plans[key] = msgspec.convert(notice.details, Plan)


async def recover(
    reader: AIOKafkaConsumer, topic_partition: TopicPartition, *, start: int, floor: int, fence: int
) -> RecoveredAnswers:
    """Read `tokens` from the offset `start` up to the own `fence`; `floor` is the newest epoch that began before
    `start`.

    An answer that began before `start` was finished by then; its remaining events are skipped.

    Raises:
        LostFenceError: the log has lost its tail since the fence was written.
    """
    recovered = RecoveredAnswers()
    rule = ReaderRule(remember=sys.maxsize)
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
                event = decode(TokenEvent, record.value, record.headers)
                update = rule.read(record.partition, record.offset, event)
                if update is not None and event.notice is not None:
                    key = (update.answer.user_id, update.answer.request_id)
                    recovered.note(key, event.notice, event.index or 0, event.timestamp or 0)
            except (WireError, msgspec.ValidationError):
                continue  # not written by a worker; readers skip it too
    recovered.answers.update({key: one for key, one in rule.answers.items() if one.epoch >= 0 and not one.missing})
    return recovered
