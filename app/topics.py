"""The topics of Parley: what each is for, how it is created, and the check that a worker makes before it starts.

`requests`, `tokens`, `turns` and `controls` are keyed by user and have the same number of partitions, so that one user
is one partition everywhere; a topic with another count would put a user's records where nobody looks for them.
Changelogs of tables are not here: the worker creates them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code

from app.kafka_clients import KafkaAwayError, unreachable
from app.settings import SEGMENT_S, Settings
from app.topic_config import Bound, Rule, enforce
from app.wire.limits import MAX_RECORD_BYTES

CONNECT_TIMEOUT_S = 5.0
LEADERS_TIMEOUT_S = 30.0


class TopicsError(Exception):
    """A topic is missing or not as the settings say; one line that says what to do."""


class TopicName(StrEnum):
    REQUESTS = "requests"
    TOKENS = "tokens"
    TURNS = "turns"
    CONTROLS = "controls"
    USAGE = "usage"
    DEAD_LETTERS = "dead-letters"


class TimestampType(StrEnum):
    CREATE_TIME = "CreateTime"  # the producer's
    LOG_APPEND_TIME = "LogAppendTime"  # the broker's


class _Answer(IntEnum):
    """Error codes of the protocol that are told apart here."""

    OK = 0
    TOPIC_EXISTS = 36
    TOO_FEW_BROKERS = 38


@dataclass(frozen=True, slots=True)
class TopicSpec:
    name: str
    partitions: int
    replication: int
    retention_s: int
    timestamps: TimestampType = TimestampType.CREATE_TIME
    by_worker: bool = False  # a worker that misses it creates it: it came later than the others

    @property
    def config(self) -> dict[str, str]:
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_s * 1000),
            "message.timestamp.type": self.timestamps.value,
            "max.message.bytes": str(MAX_RECORD_BYTES),
            # A segment that is written to is never deleted, so its length adds to the retention.
            "segment.ms": str(min(SEGMENT_S, self.retention_s) * 1000),
            # One replica may be away without stopping writes, where there are enough of them.
            "min.insync.replicas": str(max(1, self.replication - 1)),
        }

    @property
    def rules(self) -> tuple[Rule, ...]:
        """What has to hold for a topic that is there."""
        rules = [Rule("max.message.bytes", str(MAX_RECORD_BYTES), Bound.AT_LEAST)]
        if self.timestamps is TimestampType.LOG_APPEND_TIME:
            rules.append(Rule("message.timestamp.type", self.timestamps.value))
        return tuple(rules)


@dataclass(frozen=True, slots=True)
class FoundTopic:
    spec: TopicSpec
    partitions: int | None  # None: there is no such topic
    led: bool  # every partition has a leader

    @property
    def fits(self) -> bool:
        return self.partitions == self.spec.partitions


def topic_specs(settings: Settings) -> tuple[TopicSpec, ...]:
    def spec(name: TopicName, retention_s: int, timestamps: TimestampType = TimestampType.CREATE_TIME) -> TopicSpec:
        return TopicSpec(
            name=settings.topic(name.value),
            partitions=settings.partitions,
            replication=settings.replication,
            retention_s=retention_s,
            timestamps=timestamps,
        )

    return (
        spec(TopicName.REQUESTS, settings.requests_retention_s),
        spec(TopicName.TOKENS, settings.tokens_retention_s, TimestampType.LOG_APPEND_TIME),
        spec(TopicName.TURNS, settings.turns_retention_s),
        # An erasure or a cancel counts from when the broker had it, whatever its sender's clock says.
        spec(TopicName.CONTROLS, settings.requests_retention_s, TimestampType.LOG_APPEND_TIME),
        replace(spec(TopicName.USAGE, settings.turns_retention_s), by_worker=True),
        spec(TopicName.DEAD_LETTERS, settings.turns_retention_s),
    )


async def create_topics(settings: Settings) -> list[str]:
    """Create the topics that are missing, wait until they can be used, and return their names."""
    specs = topic_specs(settings)
    async with _admin(settings) as admin:
        missing = [found.spec for found in await _find(admin, specs) if found.partitions is None]
        response = await admin.create_topics([
            NewTopic(spec.name, spec.partitions, spec.replication, topic_configs=spec.config) for spec in missing
        ])  # fmt: skip
        created: list[str] = []
        for name, code, *message in response.topic_errors:
            if code == _Answer.OK:
                created.append(name)
            elif code != _Answer.TOPIC_EXISTS:
                why = (message[0] if message else None) or for_code(code).__name__
                # Too few brokers for the replicas: those that are away count for none.
                kind = KafkaAwayError if code == _Answer.TOO_FEW_BROKERS else TopicsError
                raise kind(f"the topic {name!r} could not be created: {why}")
        # Another broker may not have heard of them yet: this one is asked.
        _check(await _until_led(admin, specs))
    return created


async def check_topics(settings: Settings) -> None:
    """Raise with one line unless every topic is there with `PARLEY_PARTITIONS` partitions."""
    _check(await find_topics(settings))


def _check(topics: Iterable[FoundTopic]) -> None:
    for found in topics:
        if found.partitions is None and found.spec.by_worker:
            continue
        if found.partitions is None:
            raise TopicsError(f"the topic {found.spec.name!r} does not exist: create it with `parley topics create`")
        if not found.fits:
            raise TopicsError(
                f"the topic {found.spec.name!r} has {found.partitions} partitions, not {found.spec.partitions}: "
                f"set PARLEY_PARTITIONS={found.partitions}, or take new topics by PARLEY_TOPIC_PREFIX"
            )


async def configure_topics(settings: Settings) -> None:
    """Set what promises rest on where a topic has it otherwise; raises `TopicConfigError`."""
    async with _admin(settings) as admin:
        await enforce(admin, {spec.name: spec.rules for spec in topic_specs(settings)})


async def find_topics(settings: Settings) -> list[FoundTopic]:
    async with _admin(settings) as admin:
        return await _find(admin, topic_specs(settings))


async def _find(admin: AIOKafkaAdminClient, specs: tuple[TopicSpec, ...]) -> list[FoundTopic]:
    # All of them: to ask for one that is missing would create it on many brokers.
    described: dict[str, dict[str, Any]] = {topic["topic"]: topic for topic in await admin.describe_topics()}

    def found(spec: TopicSpec) -> FoundTopic:
        topic = described.get(spec.name)
        if topic is None:
            return FoundTopic(spec, partitions=None, led=False)
        partitions = topic["partitions"]
        return FoundTopic(spec, partitions=len(partitions), led=all(one["leader"] >= 0 for one in partitions))

    return [found(spec) for spec in specs]


async def _until_led(admin: AIOKafkaAdminClient, specs: tuple[TopicSpec, ...]) -> list[FoundTopic]:
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    while True:
        topics = await _find(admin, specs)
        if all(found.led for found in topics):
            return topics
        if time.monotonic() > deadline:
            raise KafkaAwayError("the new topics have no leader yet: is a broker down?")
        await asyncio.sleep(0.05)


@asynccontextmanager
async def _admin(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**settings.cluster.options())
    try:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await admin.start()
        except (KafkaError, OSError, TimeoutError):
            raise await unreachable(settings.cluster) from None
        try:
            yield admin
        except (KafkaError, TimeoutError) as error:
            raise KafkaAwayError(
                f"Kafka at {settings.cluster} failed: {type(error).__name__} {error}".rstrip()
            ) from error
    finally:
        await admin.close()
