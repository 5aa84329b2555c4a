"""That the benchmark measures what it says; never how fast anything is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.local.kafka import KafkaCluster
from tables import records
from tables.records import Conversation, Table
from tables.store import PartitionStore
from tests.benchmarks import __main__ as bench
from tests.benchmarks import soak
from tests.benchmarks.load import Load
from tests.benchmarks.parts import tables as tables_part
from tests.benchmarks.parts.rounds import alternate
from tests.benchmarks.rig import Rig
from tests.benchmarks.scale import SHORT
from tests.benchmarks.systems import Echo, Parley


async def test_floor_and_pipeline_answer_the_same_load_side_by_side(kafka: KafkaCluster, tmp_path: Path) -> None:
    rig = Rig(kafka.broker_setting.removeprefix("kafka://"), tmp_path, partitions=2)
    echo, parley = Echo(rig), Parley(rig, engine="paced")
    load = Load(seconds=1, rate=10, max_tokens=3)
    async with echo, parley:
        found = await alternate({echo: load, parley: load}, rounds=1, warm_up=0)
    asked = len(load.arrivals())
    assert [found[system].stats.requests for system in (echo, parley)] == [asked, asked]
    assert [found[system].stats.failed for system in (echo, parley)] == [0, 0]
    assert [found[system].tokens for system in (echo, parley)] == [0, 3 * asked]
    assert all(reply.first is not None and reply.whole is not None for reply in found[parley].replies)
    assert found[parley].used.memory > 0
    assert found[parley].used.files > 0


async def test_users_of_a_seeded_table_go_on_with_what_they_said_before(kafka: KafkaCluster, tmp_path: Path) -> None:
    rig = Rig(kafka.broker_setting.removeprefix("kafka://"), tmp_path, partitions=1)
    parley = Parley(rig, engine="paced")
    tables_part.seed(parley.store_path, 20)
    async with parley:
        replies = await parley.run(Load(seconds=1, rate=8, max_tokens=2, users=20, people="seeded"))
        await asyncio.to_thread(parley.stop)
    store = PartitionStore.open(parley.store_path, now_ms=0, tombstones_kept_ms=0)
    rows = [records.decode_row(value, Conversation) for _, value in store.scan(Table.CONVERSATIONS)]
    store.close()
    assert len(rows) == 20
    assert sum(len(row.turns) for row in rows) == 3 * 20 + len(replies)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_every_part_measures_something(tmp_path: Path) -> None:
    names = [name for name in bench.PARTS if not name.endswith("-larger")]
    (tmp_path / "work").mkdir()
    results = await bench.measure(names, SHORT, tmp_path / "out", tmp_path / "work")
    assert [result.part for result in results] == names
    assert all(result.rows for result in results), [result.notes for result in results]


@pytest.mark.slow
async def test_a_soak_sees_memory_files_and_failures(tmp_path: Path) -> None:
    found = await asyncio.wait_for(soak.soak(0.5, 2, tmp_path / "out", tmp_path), 250)
    assert found.rows
    assert found.claims[-1].kept
