"""The configuration that promises rest on, set on topics that have another one, and checked at each start.

A changelog that is never compacted keeps erased text; one that forgets tombstones early brings deleted rows back to a
worker that was away; `tokens` and `controls` without the broker's timestamps leave a worker to its own clock. Topics
may have been created by other means, or by a version that did not know. What an operator has set more strictly stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import UnknownTopicOrPartitionError, for_code

log = logging.getLogger(__name__)

_SET_ON_TOPIC = 1  # the source of a value in DescribeConfigs: this topic's own configuration


class TopicConfigError(Exception):
    """A topic is not configured as it has to be, and may not be changed; one line that says what to do."""


class Bound(Enum):
    """How a topic's value may differ from the one that is wanted."""

    EXACTLY = auto()
    AT_LEAST = auto()
    AT_MOST = auto()
    INCLUDES = auto()  # of a list, as `cleanup.policy`


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    value: str
    bound: Bound = Bound.EXACTLY

    def accepts(self, found: str) -> bool:
        match self.bound:
            case Bound.EXACTLY:
                return found == self.value
            case Bound.INCLUDES:
                return self.value in found.replace(" ", "").split(",")
            case Bound.AT_LEAST:
                return int(found) >= int(self.value)
            case Bound.AT_MOST:
                return int(found) <= int(self.value)


async def enforce(admin: AIOKafkaAdminClient, rules: Mapping[str, Iterable[Rule]]) -> None:
    """Bring the topics, which exist, to their rules.

    Raises:
        TopicConfigError: the worker is not allowed to.
        UnknownTopicOrPartitionError: one is so new that the broker does not know it; try again.
    """
    found = await _describe(admin, rules)
    for topic, wanted in rules.items():
        values, own = found[topic]
        broken = [rule for rule in wanted if rule.name in values and not rule.accepts(values[rule.name])]
        if broken:
            await _alter(admin, topic, own, broken)
            changes = ", ".join(f"{rule.name}={rule.value} (was {values[rule.name]})" for rule in broken)
            log.info("the topic %s is configured anew: %s", topic, changes)


async def _describe(
    admin: AIOKafkaAdminClient, topics: Iterable[str]
) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """Of each topic all values, and those that were set on it."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    found: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
    for response in await admin.describe_configs(resources):
        for code, message, _kind, topic, entries in response.resources:
            if code == UnknownTopicOrPartitionError.errno:
                raise UnknownTopicOrPartitionError(topic)  # this broker has not heard of a new topic yet
            if code:
                raise TopicConfigError(
                    f"the configuration of the topic {topic!r} cannot be read: {message or for_code(code).__name__}; "
                    "allow the worker to describe configurations"
                )
            found[topic] = _values(entries)
    return found


def _values(entries: Iterable[Any]) -> tuple[dict[str, str], dict[str, str]]:
    values, own = {}, {}
    for name, value, _read_only, source, *_ in entries:
        if value is not None:
            values[name] = value
            if source == _SET_ON_TOPIC:
                own[name] = value
    return values, own


async def _alter(admin: AIOKafkaAdminClient, topic: str, own: Mapping[str, str], broken: Iterable[Rule]) -> None:
    # The request replaces all that was set on the topic, so what is to stay goes along.
    wanted = {rule.name: rule.value for rule in broken}
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {**own, **wanted})
    for response in await admin.alter_configs([resource]):
        for code, message, *_ in response.resources:
            if code:
                change = ",".join(f"{name}={value}" for name, value in wanted.items())
                raise TopicConfigError(
                    f"the topic {topic!r} needs {change}, and Kafka does not let this worker set it "
                    f"({message or for_code(code).__name__}): run kafka-configs.sh --alter --entity-type topics "
                    f"--entity-name {topic} --add-config {change}"
                )
