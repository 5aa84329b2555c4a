"""Parley's topics: their purpose, how they are created, and the check that a worker makes before it starts.

`requests`, `tokens`, `turns`, `controls`, `tool-calls` and `tool-results` are keyed by user and have the same number of
partitions, so a user has the same partition in all of them. With different counts, a user's records would lie where
their owner does not read. The worker creates the changelogs of its tables itself (app/delivery/commits/changelog.py).
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

from app.kafka.clients import KafkaAwayError, stop, unreachable
from app.kafka.topic_config import Bound, Rule, enforce
from app.policy.check import read_policy
from app.policy.file import Policy, PolicyError
from app.settings import Settings
from app.settings.kafka import COMPACTION_LAG_S, SEGMENT_S, TopicName
from app.wire.record_size import MAX_RECORD_BYTES

CONNECT_TIMEOUT_S = 5.0
LEADERS_TIMEOUT_S = 30.0
WAITS_S = 32 * 86_400
"""Longer than an answer waits, so that what has ended leaves the topic and what waits stays."""
USAGE_S = 32 * 86400
"""Least retention of `usage`: budgets of tenants count by calendar month."""


class TopicsError(Exception):
    """A topic is missing or differs from the settings; one line with the remedy."""


class TimestampType(StrEnum):
    CREATE_TIME = "CreateTime"  # the producer's timestamps
    LOG_APPEND_TIME = "LogAppendTime"  # the broker's timestamps


class _Answer(IntEnum):
    """Error codes of the Kafka protocol that are handled separately."""

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
    by_worker: bool = False  # added in a later version: a worker creates it if it is missing
    is_foreign: bool = False  # others write or read it, and may have chosen its partitions
    is_written: bool = True  # Parley writes to it
    is_compacted: bool = False  # the newest record of each key stays

    @property
    def config(self) -> dict[str, str]:
        return {
            "cleanup.policy": "compact,delete" if self.is_compacted else "delete",
            **({"max.compaction.lag.ms": str(COMPACTION_LAG_S * 1000)} if self.is_compacted else {}),
            "retention.ms": str(self.retention_s * 1000),
            "message.timestamp.type": self.timestamps.value,
            "max.message.bytes": str(MAX_RECORD_BYTES),
            # The active segment is never deleted, so its age adds to the retention.
            "segment.ms": str(min(SEGMENT_S, self.retention_s) * 1000),
            # With enough replicas, one may be offline without blocking writes.
            "min.insync.replicas": str(max(1, self.replication - 1)),
        }

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The configuration that an existing topic must have."""
        rules = [Rule("max.message.bytes", str(MAX_RECORD_BYTES), Bound.AT_LEAST)] if self.is_written else []
        if self.timestamps is TimestampType.LOG_APPEND_TIME:
            rules.append(Rule("message.timestamp.type", self.timestamps.value))
        if self.is_compacted:
            rules.append(Rule("cleanup.policy", "compact", Bound.INCLUDES))
        return tuple(rules)


@dataclass(frozen=True, slots=True)
class TopicState:
    spec: TopicSpec
    partitions: int | None  # None: the topic does not exist
    led: bool  # every partition has a leader

    @property
    def fits(self) -> bool:
        return self.partitions == self.spec.partitions or (self.spec.is_foreign and self.partitions is not None)


def topic_specs(settings: Settings) -> tuple[TopicSpec, ...]:
    def spec(name: TopicName, retention_s: int, timestamps: TimestampType = TimestampType.CREATE_TIME) -> TopicSpec:
        return TopicSpec(
            name=settings.topic(name.value),
            partitions=settings.partitions,
            replication=settings.replication,
            retention_s=retention_s,
            timestamps=timestamps,
        )

    # A sink must see an erasure as long as it can read what is erased.
    erasures_s = max(settings.turns_retention_s, settings.audit_retention_s)
    audit = replace(spec(TopicName.AUDIT, settings.audit_retention_s), by_worker=True)
    return (
        spec(TopicName.REQUESTS, settings.requests_retention_s),
        spec(TopicName.TOKENS, settings.tokens_retention_s, TimestampType.LOG_APPEND_TIME),
        spec(TopicName.TURNS, settings.turns_retention_s),
        # An erasure or cancel takes effect from the broker's receipt, whatever the sender's clock says.
        spec(TopicName.CONTROLS, settings.requests_retention_s, TimestampType.LOG_APPEND_TIME),
        replace(spec(TopicName.USAGE, max(settings.turns_retention_s, USAGE_S)), by_worker=True),
        replace(spec(TopicName.ERASURES, erasures_s), by_worker=True),
        replace(spec(TopicName.TOOL_CALLS, settings.requests_retention_s), by_worker=True),
        replace(spec(TopicName.TOOL_RESULTS, settings.requests_retention_s), by_worker=True),
        spec(TopicName.DEAD_LETTERS, settings.turns_retention_s),
        replace(spec(TopicName.WAITS, WAITS_S), by_worker=True, is_compacted=True),
        *([audit] if settings.audit_retention_s else []),
    )


def foreign_specs(settings: Settings, policy: Policy) -> tuple[TopicSpec, ...]:
    """The topics of others, by their own names."""

    def spec(name: str, retention_s: int, *, is_written: bool) -> TopicSpec:
        return TopicSpec(
            name=name,
            partitions=settings.partitions,
            replication=settings.replication,
            retention_s=retention_s,
            by_worker=True,
            is_foreign=True,
            is_written=is_written,
        )

    read = [spec(rules.topic, settings.requests_retention_s, is_written=False) for rules in policy.intake]
    written = dict.fromkeys(rules.topic for rules in policy.egress)
    return (*read, *(spec(topic, settings.turns_retention_s, is_written=True) for topic in written))


def _all_specs(settings: Settings, policy: Policy | None = None) -> tuple[TopicSpec, ...]:
    """Raises `TopicsError` if the policy file, which names some of them, cannot be read."""
    try:
        policy = read_policy(settings) if policy is None else policy
    except PolicyError as error:
        raise TopicsError(str(error)) from None
    return (*topic_specs(settings), *foreign_specs(settings, policy))


async def create_topics(settings: Settings, policy: Policy | None = None) -> list[str]:
    """Create the missing topics, those of the policy included, wait until they are usable, and return their names.
    Without `policy`, that of the settings.
    """
    specs = _all_specs(settings, policy)
    async with _admin(settings) as admin:
        missing = [topic.spec for topic in await _find(admin, specs) if topic.partitions is None]
        response = await admin.create_topics([
            NewTopic(spec.name, spec.partitions, spec.replication, topic_configs=spec.config) for spec in missing
        ])  # fmt: skip
        created: list[str] = []
        for name, code, *message in response.topic_errors:
            if code == _Answer.OK:
                created.append(name)
            elif code != _Answer.TOPIC_EXISTS:
                why = (message[0] if message else None) or for_code(code).__name__
                # With fewer brokers than replicas, brokers that are offline do not count.
                kind = KafkaAwayError if code == _Answer.TOO_FEW_BROKERS else TopicsError
                raise kind(f"the topic {name!r} could not be created: {why}")
        # Other brokers may not know them yet; ask the same one.
        _check(await _until_led(admin, specs))
    return created


async def check_topics(settings: Settings) -> None:
    """Raise with one line unless every topic exists with `PARLEY_PARTITIONS` partitions."""
    _check(await find_topics(settings))


def _check(topics: Iterable[TopicState]) -> None:
    for topic in topics:
        if topic.partitions is None and topic.spec.by_worker:
            continue
        if topic.partitions is None:
            raise TopicsError(f"the topic {topic.spec.name!r} does not exist: create it with `parley topics create`")
        if not topic.fits:
            raise TopicsError(
                f"the topic {topic.spec.name!r} has {topic.partitions} partitions, not {topic.spec.partitions}: "
                f"set PARLEY_PARTITIONS={topic.partitions}, or use new topics with PARLEY_TOPIC_PREFIX"
            )


async def configure_topics(settings: Settings, policy: Policy | None = None) -> None:
    """Correct the configuration that the guarantees depend on; raises `TopicConfigError`."""
    specs = [spec for spec in _all_specs(settings, policy) if spec.rules]
    async with _admin(settings) as admin:
        await enforce(admin, {spec.name: spec.rules for spec in specs})


async def find_topics(settings: Settings) -> list[TopicState]:
    async with _admin(settings) as admin:
        return await _find(admin, _all_specs(settings))


async def _find(admin: AIOKafkaAdminClient, specs: tuple[TopicSpec, ...]) -> list[TopicState]:
    # All topics: asking for a missing one would create it on many brokers.
    described: dict[str, dict[str, Any]] = {topic["topic"]: topic for topic in await admin.describe_topics()}

    def state_of(spec: TopicSpec) -> TopicState:
        topic = described.get(spec.name)
        if topic is None:
            return TopicState(spec, partitions=None, led=False)
        partitions = topic["partitions"]
        return TopicState(spec, partitions=len(partitions), led=all(one["leader"] >= 0 for one in partitions))

    return [state_of(spec) for spec in specs]


async def _until_led(admin: AIOKafkaAdminClient, specs: tuple[TopicSpec, ...]) -> list[TopicState]:
    deadline = time.monotonic() + LEADERS_TIMEOUT_S
    while True:
        topics = await _find(admin, specs)
        if all(topic.led for topic in topics):
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
        await stop(admin)
