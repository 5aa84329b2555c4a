"""When a partition's records are left in Kafka."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.delivery.partition import State
from app.delivery.partitions import Partitions
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
    """The records of a partition that holds as much as a test says."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys((REQUESTS, CONTROLS, TURNS), 0)
        self.bytes = dict(self.counts)
        self.parked = 0

    def active(self, topic: str) -> int:
        return self.counts[topic]

    def size(self, topic: str) -> int:
        return self.bytes[topic]


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    flow, held = Flow(), SimpleNamespace(number=3, paused=set(), records=Held())
    partitions = Partitions(Settings(data_dir=tmp_path, max_in_flight=10), SimpleNamespace(), flow)
    partitions.all[3] = held
    return partitions, flow, held


def test_a_partition_that_holds_too_many_bytes_is_paused_until_it_has_room(parts: Any) -> None:
    partitions, flow, held = parts
    held.records.counts[REQUESTS] = 4
    for held_bytes, paused in ((64 * MIB - 1, False), (64 * MIB, True), (32 * MIB, True), (24 * MIB, False)):
        held.records.bytes[REQUESTS] = held_bytes
        partitions._relieve(held)
        assert flow.paused == ({(REQUESTS, 3)} if paused else set())
        assert held.paused == ({REQUESTS} if paused else set())


@pytest.mark.parametrize(("topic", "most"), [(TURNS, 80), (REQUESTS, 320)])
def test_a_partition_that_holds_too_many_records_is_paused_until_it_has_room(parts: Any, topic: str, most: int) -> None:
    partitions, flow, held = parts
    for records, paused in ((most - 1, False), (most, True), (most // 2, True), (int(0.4 * most), False)):
        held.records.counts[topic] = records
        partitions._relieve(held)
        assert flow.paused == ({(topic, 3)} if paused else set())


def test_a_partition_with_too_many_parked_requests_is_paused(parts: Any) -> None:
    partitions, flow, held = parts
    held.records.parked = 16_384
    partitions._relieve(held)
    assert flow.paused == {(REQUESTS, 3)}
    held.records.parked = 6_000
    partitions._relieve(held)
    assert flow.paused == set()


def test_room_in_one_measure_alone_does_not_resume(parts: Any) -> None:
    partitions, flow, held = parts
    held.records.counts[REQUESTS], held.records.bytes[REQUESTS] = 320, 64 * MIB
    partitions._relieve(held)
    held.records.counts[REQUESTS] = 0
    partitions._relieve(held)
    assert flow.paused == {(REQUESTS, 3)}


def test_a_pause_that_a_rebalance_has_undone_is_made_again(parts: Any) -> None:
    partitions, flow, held = parts
    held.records.counts[TURNS] = 80
    partitions._relieve(held)
    flow.paused.clear()  # Faust resumes all partitions at the end of a rebalance
    held.records.counts[TURNS] = 81
    partitions._relieve(held)
    assert flow.paused == {(TURNS, 3)}


async def test_a_partition_that_leaves_paused_flows_when_it_returns(parts: Any) -> None:
    partitions, flow, held = parts
    held.records.counts[TURNS] = 80
    partitions._relieve(held)
    held.close = partial(asyncio.sleep, 0)
    held.state = State.OWNED
    await partitions.assigned(())
    assert held.paused == set()
    partitions._relieve(held)
    flow.paused.clear()
    partitions._relieve(held)
    assert flow.paused == set(), "what is left of it pauses nothing"
