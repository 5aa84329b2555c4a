"""What the writer leaves out: turns of users who were erased meanwhile, and of partitions that it has lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from app.search import writer
from app.search.errors import MilvusRefusedError
from app.search.milvus import Milvus
from app.search.writer import HistoryWriter
from app.wire import Turn
from app.wire.turn import Timing
from tests.integration.search.history import Hashed, turn
from tests.simulation.milvus import MilvusServer, SimMilvus


class Server(SimMilvus):
    """Answers at once, but for upserts while the gate is shut."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self._server = MilvusServer(self.rows)
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()
        self.refused: set[str] = set()

    async def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **options: Any) -> Any:
        if method in self.refused:
            raise MilvusRefusedError("no such field")
        if method == "upsert":
            self.asked.set()
            await self.gate.wait()
        if method == "describe_collection":
            described = self._describe()[method]
            described["fields"][-1]["params"]["dim"] = Hashed.dimension
            return {**described, "properties": {}}
        return self._effect(method, args, options)()


class Bench:
    def __init__(self, *, owned: set[int] | None = None) -> None:
        self.server = Server()
        self.owned = owned
        self.done: list[str] = []
        self.writer = HistoryWriter(
            cast(Milvus, self.server), "turns", Hashed(), fatal=self._fatal, owns=self._owns, delay_s=0.0
        )

    async def _owns(self, partition: int) -> bool:
        return self.owned is None or partition in self.owned

    def _fatal(self, error: Exception) -> None:
        raise error

    def submit(self, one: Turn, partition: int = 0) -> None:
        self.writer.submit(one, lambda _refusal: self.done.append(one.request_id), partition)

    async def settle(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.done) < count:
                await asyncio.sleep(0.005)

    @property
    def keys(self) -> set[str]:
        return {key.rpartition(":")[0] for key in self.server.rows}


@pytest.fixture
async def bench() -> Any:
    bench = Bench()
    yield bench
    await bench.writer.stop(0)


def asked(request_id: str, at: int, ended: int) -> Turn:
    return turn("ann", request_id, created_at=ended, timing=Timing(requested_at=at))


async def test_turn_that_ended_after_its_users_erasure_is_deleted_with_it(bench: Bench) -> None:
    bench.writer.start()
    bench.submit(asked("before", at=1000, ended=2000))
    bench.submit(asked("after", at=1600, ended=2000))
    await bench.settle(2)
    assert bench.keys == {"ann/before", "ann/after"}
    bench.writer.erase("ann", 1500, 2000, lambda: bench.done.append("erased"))
    await bench.settle(3)
    assert bench.keys == {"ann/after"}


async def test_turn_that_waits_when_its_user_is_erased_never_gets_to_milvus(bench: Bench) -> None:
    written: list[str] = []
    effect = bench.server._effect

    def note(method: str, args: Any, options: Any) -> Any:
        written.extend(row["turn_id"] for row in args[1]) if method == "upsert" else None
        return effect(method, args, options)

    bench.server._effect = note  # type: ignore[method-assign]
    bench.submit(asked("before", at=1000, ended=2000))
    bench.submit(asked("after", at=1600, ended=2000))
    bench.writer.erase("ann", 1500, 2000, lambda: bench.done.append("erased"))
    bench.writer.start()
    await bench.settle(3)
    assert {key.rpartition(":")[0] for key in written} == {"ann/after"}


async def test_turn_that_is_being_written_when_its_user_is_erased_is_deleted(bench: Bench) -> None:
    bench.server.gate.clear()
    bench.writer.start()
    bench.submit(asked("before", at=1000, ended=2000))
    await bench.server.asked.wait()
    bench.writer.erase("ann", 1500, 2000, lambda: bench.done.append("erased"))
    bench.server.gate.set()
    await bench.settle(2)
    assert bench.keys == set()


async def test_turn_of_a_partition_that_was_lost_is_neither_written_nor_done() -> None:
    bench = Bench(owned={1})
    bench.writer.start()
    bench.submit(turn("ann", "lost"), partition=0)
    bench.submit(turn("bob", "kept"), partition=1)
    await bench.settle(1)
    assert (bench.done, bench.keys) == (["kept"], {"bob/kept"})
    await bench.writer.stop(0)


async def test_a_deletion_that_milvus_refuses_is_tried_again_and_delays_no_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "REFUSED_PAUSE_S", 0.3)
    bench.submit(asked("old", 1000, 1100))
    bench.writer.start()
    await bench.settle(1)
    bench.server.refused = {"delete"}
    bench.writer.erase("ann", 1500, 2000, lambda: bench.done.append("erased"))
    bench.submit(asked("new", 3000, 3100))
    await bench.settle(2)
    assert bench.done == ["old", "new"]
    assert bench.writer.backlog == 1
    bench.server.refused = set()
    await bench.settle(3)
    assert bench.done[-1] == "erased"
    assert bench.keys == {"ann/new"}


async def test_a_refused_deletion_leaves_with_its_partition(bench: Bench) -> None:
    bench.server.refused = {"delete"}
    bench.writer.erase("ann", 1500, 2000, lambda: bench.done.append("erased"), 3)
    bench.writer.start()
    bench.submit(asked("new", 3000, 3100))
    await bench.settle(1)
    bench.writer.revoke({3})
    assert bench.writer.backlog == 0


async def test_erasures_of_one_user_that_wait_are_one_deletion(bench: Bench) -> None:
    for until in (1000, 3000, 2000):
        bench.writer.erase("ann", until, until, lambda until=until: bench.done.append(str(until)))
    bench.writer.erase("bob", 1000, 1000, lambda: bench.done.append("bob"))
    assert bench.writer.backlog == 2
    bench.submit(asked("at", 2500, 2600))
    bench.writer.start()
    await bench.settle(5)
    assert bench.done == ["1000", "3000", "2000", "bob", "at"]
    assert bench.writer.stats().erasures == 2


class Stuck(Hashed):
    """Never done with a text."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def embed(self, texts: Any, *, query: bool = False) -> Any:
        if texts and texts[0].startswith("slow"):
            self.asked.set()
            await asyncio.Event().wait()
        return await super().embed(texts, query=query)


async def test_stop_does_not_wait_for_a_batch_that_is_its_next_owners(bench: Bench) -> None:
    embedder = Stuck()
    bench.writer = HistoryWriter(cast(Milvus, bench.server), "turns", embedder, fatal=bench._fatal, delay_s=0.0)
    bench.writer.start()
    bench.submit(turn("ann", "r", "slow"))
    await embedder.asked.wait()
    bench.writer.revoke({0})
    async with asyncio.timeout(60):
        await bench.writer.stop(3600)
    assert (bench.done, bench.keys) == ([], set())


async def test_stop_waits_for_a_write_that_is_on_its_way(bench: Bench) -> None:
    bench.server.gate.clear()
    bench.writer.start()
    bench.submit(turn("ann", "r"))
    await bench.server.asked.wait()
    bench.writer.revoke({0})
    stopping = asyncio.ensure_future(bench.writer.stop(3600))
    await asyncio.sleep(0.01)
    bench.server.gate.set()
    await stopping
    assert (bench.done, bench.keys) == ([], {"ann/r"})
