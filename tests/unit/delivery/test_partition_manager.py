"""When a partition's records are left in Kafka."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.delivery.partition_manager import PartitionManager
from app.delivery.record import CONTROLS, REQUESTS, TURNS
from app.settings import Settings

MIB = 1024 * 1024


class Flow:
    def __init__(self) -> None:
        self.paused: set[tuple[str, int]] = set()

    def pause(self, topic: str, partition: int) -> None:
        self.paused.add((topic, partition))

    def resume(self, topic: str, partition: int) -> None:
        self.paused.remove((topic, partition))


class Held:
    """A partition that holds as much as a test says."""

    def __init__(self) -> None:
        self.number, self.paused = 3, set()
        self.records = dict.fromkeys((REQUESTS, CONTROLS, TURNS), 0)
        self.bytes = dict(self.records)

    def open_of(self, topic: str) -> int:
        return self.records[topic]

    def bytes_of(self, topic: str) -> int:
        return self.bytes[topic]


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    flow, held = Flow(), Held()
    owner = PartitionManager(
        Settings(data_dir=tmp_path, max_in_flight=10, partition_held_mb=10), SimpleNamespace(), flow
    )
    owner.partitions[3] = held
    return owner, flow, held


def test_a_partition_that_holds_too_many_bytes_is_paused_until_it_has_room(parts: Any) -> None:
    owner, flow, held = parts
    held.records[REQUESTS] = 4
    for held_bytes, paused in ((10 * MIB - 1, False), (10 * MIB, True), (5 * MIB, True), (4 * MIB, False)):
        held.bytes[REQUESTS] = held_bytes
        owner._relieve(held)
        assert flow.paused == ({(REQUESTS, 3)} if paused else set())
        assert held.paused == ({REQUESTS} if paused else set())


def test_a_partition_that_holds_too_many_records_is_paused_until_it_has_room(parts: Any) -> None:
    owner, flow, held = parts
    for records, paused in ((79, False), (80, True), (31, True), (30, False)):
        held.records[TURNS] = records
        owner._relieve(held)
        assert flow.paused == ({(TURNS, 3)} if paused else set())


def test_room_in_one_measure_alone_does_not_resume(parts: Any) -> None:
    owner, flow, held = parts
    held.records[REQUESTS], held.bytes[REQUESTS] = 80, 10 * MIB
    owner._relieve(held)
    held.records[REQUESTS] = 0
    owner._relieve(held)
    assert flow.paused == {(REQUESTS, 3)}
