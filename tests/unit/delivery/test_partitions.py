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
        self.full = dict.fromkeys((REQUESTS, CONTROLS, TURNS), 0.0)

    def filled(self, topic: str) -> float:
        return self.full[topic]


@pytest.fixture
def parts(tmp_path: Path) -> Any:
    flow, held = Flow(), SimpleNamespace(number=3, paused=set(), records=Held())
    partitions = Partitions(Settings(data_dir=tmp_path, max_in_flight=10), SimpleNamespace(), flow)
    partitions.all[3] = held
    return partitions, flow, held


@pytest.mark.parametrize("topic", [TURNS, REQUESTS])
def test_a_partition_that_is_full_is_paused_until_it_has_room(parts: Any, topic: str) -> None:
    partitions, flow, held = parts
    for filled, paused in ((0.99, False), (1.0, True), (0.5, True), (0.4, False)):
        held.records.full[topic] = filled
        partitions._relieve(held)
        assert flow.paused == ({(topic, 3)} if paused else set())
        assert held.paused == ({topic} if paused else set())


def test_a_pause_that_a_rebalance_has_undone_is_made_again(parts: Any) -> None:
    partitions, flow, held = parts
    held.records.full[TURNS] = 1.0
    partitions._relieve(held)
    flow.paused.clear()  # Faust resumes all partitions at the end of a rebalance
    held.records.full[TURNS] = 1.1
    partitions._relieve(held)
    assert flow.paused == {(TURNS, 3)}


async def test_a_partition_that_leaves_paused_flows_when_it_returns(parts: Any) -> None:
    partitions, flow, held = parts
    held.records.full[TURNS] = 1.0
    partitions._relieve(held)
    held.close = partial(asyncio.sleep, 0)
    held.state = State.OWNED
    await partitions.assigned(())
    assert held.paused == set()
    partitions._relieve(held)
    flow.paused.clear()
    partitions._relieve(held)
    assert flow.paused == set(), "what is left of it pauses nothing"
