"""What the writer leaves out: turns of users who were erased meanwhile, and of partitions that it has lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from app.search import hiding, writer
from app.search.index import HideError
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.search.vector_store import IndexRefusedError
from app.search.writer import IndexWriter
from app.wire.turn import Timing, Turn
from tables.erasures import Scope
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
            raise IndexRefusedError("no such field")
        if method == "upsert":
            self.asked.set()
            await self.gate.wait()
        if method == "describe_collection":
            described = self._describe()[method]
            described["fields"][-1]["params"]["dim"] = Hashed.dimension
            return {**described, "properties": {}}
        return self._effect(method, args, options)()


def store_of(server: Server) -> MilvusStore:
    return MilvusStore(cast(Milvus, server), "turns")


class Bench:
    def __init__(self, *, owned: set[int] | None = None) -> None:
        self.server = Server()
        self.owned = owned
        self.done: list[str] = []
        self.writer = IndexWriter(store_of(self.server), Hashed(), fatal=self._fatal, owns=self._owns, delay_s=0.0)

    async def _owns(self, partition: int) -> bool:
        return self.owned is None or partition in self.owned

    def _fatal(self, error: Exception) -> None:
        raise error

    def submit(self, one: Turn, partition: int = 0) -> None:
        self.writer.submit(one, lambda _refusal: self.done.append(one.request_id), partition)

    async def settle(self, count: int) -> None:
        async with asyncio.timeout(60):
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
    bench.writer.erase(Scope("ann"), 1500, 2000, lambda: bench.done.append("erased"))
    await bench.settle(3)
    assert bench.keys == {"ann/after"}


async def test_erasure_of_a_conversation_deletes_its_rows_alone(bench: Bench) -> None:
    bench.writer.start()
    bench.submit(asked("of-it", at=1000, ended=2000))
    bench.submit(msgspec.structs.replace(asked("of-d", at=1000, ended=2000), conversation_id="d"))
    await bench.settle(2)
    bench.writer.erase(Scope("ann", "default"), 1500, 2000, lambda: bench.done.append("erased"))
    await bench.settle(3)
    assert bench.keys == {"ann/of-d"}


async def test_turn_that_waits_when_its_user_is_erased_never_gets_to_milvus(bench: Bench) -> None:
    written: list[str] = []
    effect = bench.server._effect

    def note(method: str, args: Any, options: Any) -> Any:
        written.extend(row["turn_id"] for row in args[1]) if method == "upsert" else None
        return effect(method, args, options)

    bench.server._effect = note  # type: ignore[method-assign]
    bench.submit(asked("before", at=1000, ended=2000))
    bench.submit(asked("after", at=1600, ended=2000))
    bench.writer.erase(Scope("ann"), 1500, 2000, lambda: bench.done.append("erased"))
    bench.writer.start()
    await bench.settle(3)
    assert {key.rpartition(":")[0] for key in written} == {"ann/after"}


async def test_turn_that_is_being_written_when_its_user_is_erased_is_deleted(bench: Bench) -> None:
    bench.server.gate.clear()
    bench.writer.start()
    bench.submit(asked("before", at=1000, ended=2000))
    await bench.server.asked.wait()
    bench.writer.erase(Scope("ann"), 1500, 2000, lambda: bench.done.append("erased"))
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
    bench.writer.erase(Scope("ann"), 1500, 2000, lambda: bench.done.append("erased"))
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
    bench.writer.erase(Scope("ann"), 1500, 2000, lambda: bench.done.append("erased"), 3)
    bench.writer.start()
    bench.submit(asked("new", 3000, 3100))
    await bench.settle(1)
    bench.writer.revoke({3})
    assert bench.writer.backlog == 0


async def test_erasures_of_one_user_that_wait_are_one_deletion(bench: Bench) -> None:
    for until in (1000, 3000, 2000):
        bench.writer.erase(Scope("ann"), until, until, lambda until=until: bench.done.append(str(until)))
    bench.writer.erase(Scope("bob"), 1000, 1000, lambda: bench.done.append("bob"))
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
    bench.writer = IndexWriter(store_of(bench.server), embedder, fatal=bench._fatal, delay_s=0.0)
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


class Guarded:
    """A writer whose guard has no verdict about mallory, at once or ever."""

    def __init__(self, bench: Bench) -> None:
        self.tries: list[str] = []
        self.held = asyncio.Event()
        self.bench = bench
        bench.writer = IndexWriter(store_of(bench.server), Hashed(), fatal=bench._fatal, hide=self.hide, delay_s=0.0)
        self.reasons: dict[str, str | None] = {}

    async def hide(self, partition: int, one: Turn) -> Turn | None:
        self.tries.append(one.request_id)
        if one.user_id == "mallory":
            raise HideError("the search for private values took longer than 10 s")
        if one.user_id == "slow":
            await self.held.wait()
        if one.user_id == "odd":
            raise KeyError("a bug")
        return None if partition == 9 else replace(one, prompt=f"hidden {one.prompt}")

    def submit(self, one: Turn, partition: int = 0) -> None:
        def done(reason: str | None) -> None:
            self.bench.done.append(one.request_id)
            self.reasons[one.request_id] = reason

        self.bench.writer.submit(one, done, partition)


async def test_a_turn_without_a_verdict_holds_up_neither_turns_nor_erasures(bench: Bench) -> None:
    guarded = Guarded(bench)
    bench.writer.start()
    for number in range(20):
        guarded.submit(turn("mallory", f"m{number}"))
    guarded.submit(turn("slow", "s"))
    guarded.submit(turn("omar", "o"), 1)
    bench.writer.erase(Scope("nina"), 1500, 2000, lambda: bench.done.append("erased"), 2)
    await bench.settle(2)
    assert {*bench.done} == {"o", "erased"}
    assert {row["text"] for row in bench.server.rows.values() if row["user_id"] == "omar"} == {"hidden hello", "hi"}
    guarded.held.set()
    await bench.settle(3)
    assert bench.writer.backlog == 20


async def test_a_turn_that_never_gets_a_verdict_is_named_and_done_with_its_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hiding, "PAUSE_S", 0.01)
    guarded = Guarded(bench)
    bench.writer.start()
    guarded.submit(turn("mallory", "m"))
    guarded.submit(turn("odd", "x"))
    await bench.settle(2)
    assert guarded.tries.count("m") == hiding.MOST_TRIES
    assert guarded.reasons["m"] == "not indexed: the search for private values took longer than 10 s"
    assert guarded.reasons["x"] == "not indexed: KeyError"
    assert "turn mallory/m is not indexed" in caplog.text
    assert bench.keys == set()


async def test_a_turn_whose_values_are_being_searched_when_its_user_is_erased_never_gets_to_milvus(
    bench: Bench,
) -> None:
    guarded = Guarded(bench)
    bench.writer.start()
    guarded.submit(turn("slow", "before", created_at=1100, timing=Timing(requested_at=1000)))
    guarded.submit(turn("slow", "after", created_at=3100, timing=Timing(requested_at=3000)))
    bench.writer.erase(Scope("slow"), 1500, 2000, lambda: bench.done.append("erased"))
    await bench.settle(1)
    guarded.held.set()
    await bench.settle(3)
    assert bench.keys == {"slow/after"}


async def test_turns_whose_values_are_being_searched_leave_with_their_partition(bench: Bench) -> None:
    guarded = Guarded(bench)
    bench.writer.start()
    for number in range(20):
        guarded.submit(turn("slow", f"s{number}"), 3)
    guarded.submit(turn("mallory", "m"), 3)
    guarded.submit(turn("ann", "left"), 9)
    await asyncio.sleep(0.01)
    bench.writer.revoke({3})
    guarded.submit(turn("omar", "o"), 1)
    await bench.settle(1)
    await asyncio.sleep(0.01)
    assert (bench.done, bench.writer.backlog) == (["o"], 0)
    async with asyncio.timeout(60):
        await bench.writer.stop(3600)
