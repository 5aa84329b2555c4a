"""The topics, on a real broker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from app.delivery.commits.changelog import changelog_config, changelog_topic, create_changelogs
from app.kafka.clients import KafkaUnusableError
from app.kafka.topics import (
    TopicsError,
    check_topics,
    configure_topics,
    create_topics,
    find_topics,
    topic_specs,
)
from app.local.kafka import KafkaCluster
from app.local.ports import free_port
from app.settings import Settings
from app.settings.kafka import TopicName
from tables.records import Table
from tests.conftest import NewSettings


async def _config(settings: Settings, topic: str) -> dict[str, str]:
    admin = AIOKafkaAdminClient(**settings.cluster.options())
    await admin.start()
    try:
        responses = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    finally:
        await admin.close()
    return {entry[0]: entry[1] for entry in responses[0].resources[0][4]}


async def test_created_topics_have_the_specified_configuration(settings: Settings) -> None:
    for spec in topic_specs(settings):
        config = await _config(settings, spec.name)
        assert {name: config[name] for name in spec.config} == spec.config


async def test_tokens_take_the_brokers_time_and_requests_the_producers(settings: Settings) -> None:
    assert (await _config(settings, settings.topic("tokens")))["message.timestamp.type"] == "LogAppendTime"
    assert (await _config(settings, settings.topic("requests")))["message.timestamp.type"] == "CreateTime"


async def test_creating_again_changes_nothing(settings: Settings) -> None:
    assert await create_topics(settings) == []
    assert all(found.fits for found in await find_topics(settings))


async def test_another_partition_count_is_told_with_the_setting_to_change(settings: Settings) -> None:
    other = settings.model_copy(update={"partitions": settings.partitions + 1})
    with pytest.raises(TopicsError, match=rf"has {settings.partitions} partitions.*PARLEY_PARTITIONS"):
        await check_topics(other)


async def test_a_missing_topic_is_told_with_the_command_that_creates_it(settings: Settings) -> None:
    other = settings.model_copy(update={"topic_prefix": "nowhere-"})
    with pytest.raises(TopicsError, match=r"'nowhere-requests' does not exist.*parley topics create"):
        await check_topics(other)
    assert all(found.partitions is None for found in await find_topics(other)), "looking must not create"


async def test_no_broker_is_told_in_one_line(new_settings: NewSettings, settings: Settings) -> None:
    away = settings.model_copy(update={"broker": f"kafka://127.0.0.1:{free_port()}"})
    with pytest.raises(KafkaUnusableError) as caught:
        await check_topics(away)
    assert "\n" not in str(caught.value)
    assert "parley local up" in str(caught.value)


def test_the_commands_create_what_is_missing_and_say_what_is_there(kafka: KafkaCluster, tmp_path: Path) -> None:
    def topics(*arguments: str, partitions: int = 2) -> tuple[int, str, str]:
        environment = {
            **os.environ,
            "PARLEY_BROKER": kafka.broker_setting,
            "PARLEY_TOPIC_PREFIX": "commands-",
            "PARLEY_PARTITIONS": str(partitions),
        }
        command = [str(Path(sys.executable).with_name("parley")), "topics", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    topics_in_all = len(TopicName)
    code, out, _ = topics("list")
    assert (code, out.count("missing")) == (1, topics_in_all)
    code, out, _ = topics("create")
    assert (code, out.count("created commands-")) == (0, topics_in_all)
    assert topics("create") == (0, "all topics exist\n", "")
    code, out, _ = topics("list")
    assert (code, out.count("2 partitions")) == (0, topics_in_all)
    code, _, err = topics("create", partitions=3)
    assert code == 2
    assert "PARLEY_PARTITIONS=2" in err
    assert len(err.splitlines()) == 1


async def test_changelogs_have_the_configuration_that_erasure_and_restoring_rest_on(settings: Settings) -> None:
    await _create_changelogs(settings)
    for table in Table:
        await _shows(settings, changelog_topic(settings, table), changelog_config(settings))


async def test_topics_of_an_older_version_are_configured_anew_and_keep_what_an_operator_has_set(
    settings: Settings,
) -> None:
    await _create_changelogs(settings)
    changelog, controls = changelog_topic(settings, Table.ERASED), settings.topic("controls")
    await _set(settings, changelog, {"cleanup.policy": "compact", "segment.bytes": "20971520"})
    await _set(settings, controls, {"retention.ms": "3600000"})
    await _shows(settings, changelog, {"segment.bytes": "20971520"})
    await _shows(settings, controls, {"message.timestamp.type": "CreateTime"})
    await configure_topics(settings)
    await _create_changelogs(settings)
    await _shows(settings, changelog, {"max.compaction.lag.ms": "86400000", "segment.bytes": "20971520"})
    await _shows(settings, controls, {"message.timestamp.type": "LogAppendTime", "retention.ms": "3600000"})


async def test_stricter_configuration_of_an_operator_stays(settings: Settings) -> None:
    await _create_changelogs(settings)
    changelog = changelog_topic(settings, Table.ENDED)
    strict = {"cleanup.policy": "compact", "max.compaction.lag.ms": "600000", "delete.retention.ms": "999999999"}
    await _set(settings, changelog, strict)
    await _shows(settings, changelog, strict)
    await _create_changelogs(settings)
    await asyncio.sleep(0.5)
    await _shows(settings, changelog, strict)


async def _create_changelogs(settings: Settings) -> None:
    """As a worker does: a broker that has not heard of a new topic is asked again."""
    async with asyncio.timeout(120):
        while True:
            try:
                await create_changelogs(settings)
            except KafkaError:
                await asyncio.sleep(0.1)
            else:
                return


async def _shows(settings: Settings, topic: str, wanted: Mapping[str, str]) -> None:
    """Wait until the broker shows this configuration."""
    config: dict[str, str] = {}
    for _ in range(600):
        config = await _config(settings, topic)
        if wanted.items() <= config.items():
            return
        await asyncio.sleep(0.1)
    assert {name: config.get(name) for name in wanted} == wanted


async def _set(settings: Settings, topic: str, config: dict[str, str]) -> None:
    """Make these the only values that are set on the topic."""
    admin = AIOKafkaAdminClient(**settings.cluster.options())
    await admin.start()
    try:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, config)])
    finally:
        await admin.close()
