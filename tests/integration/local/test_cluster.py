"""Brokers that form one cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTransactionTimeout

from app.kafka.topics import create_topics, topic_specs
from app.local.kafka import KafkaCluster
from app.local.ports import free_port
from app.local.report import LocalError
from app.settings import Settings


async def test_three_brokers_go_on_when_one_is_killed_and_take_it_back(
    start_kafka: Callable[..., KafkaCluster],
) -> None:
    cluster = start_kafka(brokers=3)
    settings = Settings(_env_file=None, broker=cluster.broker_setting, partitions=3, replication=3)
    assert len(await create_topics(settings)) == len(topic_specs(settings))
    async with AIOKafkaProducer(bootstrap_servers=cluster.address.split(","), acks="all") as producer:
        cluster.nodes[0].kill()
        for partition in range(3):
            await producer.send_and_wait(settings.topic("turns"), b"kept", partition=partition)
        cluster.nodes[0].start()
        assert cluster.nodes[0].answers()
        for partition in range(3):
            await producer.send_and_wait(settings.topic("turns"), b"more", partition=partition)


async def test_no_transaction_may_hold_back_what_stands_behind_it_for_more_than_a_minute(kafka: KafkaCluster) -> None:
    for timeout_ms, is_allowed in ((60_000, True), (60_001, False)):
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka.address, transactional_id=f"of-{timeout_ms}", transaction_timeout_ms=timeout_ms
        )
        try:
            if is_allowed:
                await producer.start()
            else:
                with pytest.raises(InvalidTransactionTimeout):
                    await producer.start()
        finally:
            await producer.stop()


def test_a_failed_format_names_its_root_cause_and_not_the_end_of_a_stack(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(LocalError, match="two listeners on the same port"):
        KafkaCluster(tmp_path, ports=[(port, port)]).start()
