"""Topic configuration that the guarantees depend on, checked at each start and corrected where it differs.

A changelog that is never compacted keeps erased text. One that drops tombstones early brings deleted rows back to a
worker that was offline. Without the broker's timestamps on `tokens` and `controls`, a worker depends on its own clock.
Topics may have been created by other tools or by an older version. Stricter values set by an operator stay.
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

_SET_ON_TOPIC = 1  # config source in DescribeConfigs: DYNAMIC_TOPIC_CONFIG


class TopicConfigError(Exception):
    """A topic has a wrong configuration that may not be changed; one line with the remedy."""


class Bound(Enum):
    """How a topic's value may differ from the required one."""

    EXACTLY = auto()
    AT_LEAST = auto()
    AT_MOST = auto()
    INCLUDES = auto()  # one of a list, such as `cleanup.policy`


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    value: str
    bound: Bound = Bound.EXACTLY

    def accepts(self, actual: str) -> bool:
        match self.bound:
            case Bound.EXACTLY:
                return actual == self.value
            case Bound.INCLUDES:
                return self.value in actual.replace(" ", "").split(",")
            case Bound.AT_LEAST:
                return int(actual) >= int(self.value)
            case Bound.AT_MOST:
                return int(actual) <= int(self.value)


async def enforce(admin: AIOKafkaAdminClient, rules: Mapping[str, Iterable[Rule]]) -> None:
    """Apply the rules to existing topics.

    Raises:
        TopicConfigError: the worker is not authorized to change a topic.
        UnknownTopicOrPartitionError: the broker does not know a new topic yet; try again.
    """
    configs = await _describe(admin, rules)
    for topic, wanted in rules.items():
        values, own = configs[topic]
        broken = [rule for rule in wanted if rule.name in values and not rule.accepts(values[rule.name])]
        if broken:
            await _alter(admin, topic, own, broken)
            changes = ", ".join(f"{rule.name}={rule.value} (was {values[rule.name]})" for rule in broken)
            log.info("changed the configuration of topic %s: %s", topic, changes)


async def _describe(
    admin: AIOKafkaAdminClient, topics: Iterable[str]
) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    """All values of each topic, and the ones set on the topic itself."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
    configs: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
    for response in await admin.describe_configs(resources):
        for code, message, _kind, topic, entries in response.resources:
            if code == UnknownTopicOrPartitionError.errno:
                raise UnknownTopicOrPartitionError(topic)  # this broker does not know a new topic yet
            if code:
                raise TopicConfigError(
                    f"the configuration of the topic {topic!r} cannot be read: {message or for_code(code).__name__}; "
                    "allow the worker to describe configurations"
                )
            configs[topic] = _values(entries)
    return configs


def _values(entries: Iterable[Any]) -> tuple[dict[str, str], dict[str, str]]:
    values, own = {}, {}
    for name, value, _read_only, source, *_ in entries:
        if value is not None:
            values[name] = value
            if source == _SET_ON_TOPIC:
                own[name] = value
    return values, own


async def _alter(admin: AIOKafkaAdminClient, topic: str, own: Mapping[str, str], broken: Iterable[Rule]) -> None:
    # The request replaces all values set on the topic, so it repeats those that stay.
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
