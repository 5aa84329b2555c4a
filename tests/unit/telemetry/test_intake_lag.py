"""What waits on topics of others: who counts it, and that a topic without an end disturbs nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from agents.intake import Intake, reader_of
from app.delivery.clients import Clients
from app.delivery.partition import State
from app.policy.file import Policy
from app.policy.foreign import IntakeRules
from app.settings import Settings
from app.telemetry.broker_watch import BrokerWatch
from app.telemetry.collector import _intake_family
from app.worker import Worker
from tables.records import Table, Taken, encode, key

SETTINGS = Settings(_env_file=None, partitions=4)
POLICY = Policy(intake=(IntakeRules(topic="asks", fields={"prompt": "text"}, user_id="u"),))


class Store:
    """A table `intake` in which partition `n` of the topic is taken up to 10 times `n`."""

    def get(self, table: Table, wanted: bytes) -> bytes | None:
        rows = {key("asks", str(number)): encode(Taken(10 * number)) for number in range(1, 6)}
        return rows.get(wanted) if table is Table.INTAKE else None


def positions(*owned: int) -> dict[TopicPartition, int]:
    intake = Intake(SETTINGS, Clients(SETTINGS), POLICY)
    intake._counts = {"asks": 6, "left the policy": 6}
    partition = SimpleNamespace(ownership=SimpleNamespace(store=Store()), state=State.OWNED)
    lost = SimpleNamespace(ownership=SimpleNamespace(store=None), state=State.CLOSED)
    every = {number: partition if number in owned else lost for number in range(4)}
    worker = SimpleNamespace(_settings=SETTINGS, _intake=intake, partitions=SimpleNamespace(all=every))
    return cast(Any, Worker.intake_positions).fget(worker)


def test_each_foreign_partition_is_counted_by_the_owner_that_reads_it() -> None:
    everywhere = {TopicPartition("asks", number): 10 * number for number in range(6)}
    assert positions(0, 1, 2, 3) == everywhere
    assert positions() == {}
    parts = [positions(number) for number in range(4)]
    assert sum(map(len, parts)) == 6
    assert {at for at in everywhere if reader_of(at, 4) == 2} == parts[2].keys()


def test_the_lag_is_of_a_topic_and_of_no_partition_whose_end_is_unknown() -> None:
    at = [TopicPartition("asks", 0), TopicPartition("asks", 1), TopicPartition("others", 0)]
    family = _intake_family({at[0]: 5, at[1]: 9, at[2]: 1}, {at[0]: 25, at[1]: 7})
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"topic": "asks"}, 20.0)]


async def test_a_topic_that_somebody_has_deleted_leaves_the_broker_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: dict[TopicPartition, int] = {}

    class Client:
        async def end_offsets(self, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
            if not ends:
                raise KafkaTimeoutError
            return {at: ends[at] for at in wanted}

    at = TopicPartition("asks", 3)
    watch = BrokerWatch(Clients(SETTINGS), list, lambda: [at])
    monkeypatch.setattr(watch, "_client", Client())
    await watch._ask_foreign()
    assert watch.foreign_ends == {}
    ends[at] = 7
    await watch._ask_foreign()
    ends.clear()
    await watch._ask_foreign()
    assert watch.foreign_ends == {at: 7}
