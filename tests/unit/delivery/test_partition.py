"""A partition between its ownerships: when it takes over, how it backs off, and what it leaves behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError

from app.delivery import partition as module
from app.delivery.commits.commit import Commit, CommitQueue, RecordRefusedError
from app.delivery.escalation import ESCALATING, WORKER_ERRORS
from app.delivery.ownership import PartitionContext
from app.delivery.partition import Partition, State
from app.delivery.record import REQUESTS, Outgoing, Record
from app.settings import Settings
from tables.records import RowChange, Table
from tables.store_errors import CorruptStoreError, StoreUnusableError

RECORD = Record(REQUESTS, 0, 1, 0, b"u", b"v")
ENDED, OTHER = RowChange(Table.ENDED, b"k", b"{}"), RowChange(Table.CONVERSATIONS, b"k", b"{}")
SECRET = "the operator's secret system prompt"
OUTPUT = Outgoing("turns", b"u", b"v")


class Ownership:
    """The test ends it."""

    def __init__(self) -> None:
        self.trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inflight_requests: dict[Any, Any] = {}
        self.offsets: dict[str, Any] = {}
        self.ended = False

    async def run(self) -> None:
        await self.trouble

    def fail(self, error: BaseException) -> None:
        self.trouble.set_exception(error)

    async def end(self) -> None:
        self.ended = True


class Agent:
    def __init__(self) -> None:
        self.broke: list[BaseException] = []

    def owned(self, _partition: Partition) -> None: ...

    def released(self, _partition: Partition) -> None: ...

    def broken(self, error: BaseException) -> None:
        self.broke.append(error)


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[Ownership | None] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.agent = Agent()
        self.slept: list[float] = []
        monkeypatch.setattr(module, "take_over", self._take_over)
        monkeypatch.setattr(Partition, "_reopen_records", lambda _partition: None)
        context = PartitionContext(0, Settings(_env_file=None), cast(Any, None), cast(Any, None), CommitQueue())
        self.partition = Partition(context, cast(Any, self.agent), lambda _partition: None)

    async def _take_over(self, _place: PartitionContext, _mine: set[int]) -> Any:
        self.begun.append(None)
        await self.gate.wait()
        self.begun[-1] = Ownership()
        return self.begun[-1]

    @property
    def ownership(self) -> Ownership:
        assert self.begun[-1] is not None
        return self.begun[-1]

    async def until(self, state: State) -> None:
        async with asyncio.timeout(60):
            while self.partition.state is not state:
                await asyncio.sleep(0)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    bench = Bench(monkeypatch)
    yield bench
    await bench.partition.close()


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_partition_waits_until_its_former_holder_in_this_process_has_let_go(bench: Bench) -> None:
    await turns()
    assert bench.begun == []
    bench.partition.allow_take_over()
    await bench.until(State.OWNED)


async def test_take_over_under_way_is_given_up_at_a_rebalance_and_begins_anew_at_its_end(bench: Bench) -> None:
    bench.gate.clear()
    bench.partition.allow_take_over()
    await turns()
    assert len(bench.begun) == 1
    await bench.partition.hold_take_over()
    bench.gate.set()
    await turns()
    assert len(bench.begun) == 1, "the next owner must not be fenced by one that has not heard yet"
    bench.partition.renew()
    await bench.until(State.OWNED)
    assert len(bench.begun) == 2


async def test_a_rebalance_and_the_end_of_a_worker_let_go_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one interrupts what the first one began, and both go on with it."""
    ended: list[bool] = []

    async def end() -> None:
        await turns(5)
        ended.append(True)

    bench.partition.allow_take_over()
    await bench.until(State.OWNED)
    monkeypatch.setattr(bench.ownership, "end", end)
    first = asyncio.create_task(bench.partition.close())
    await turns(4)
    await asyncio.gather(first, bench.partition.close())
    assert ended == [True]


async def test_a_take_over_that_ends_while_it_is_given_up_leaves_no_partition_that_counts_as_owned(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries have swallowed a cancellation: the take-over succeeds, and the next cancellation ends the ownership."""
    monkeypatch.setattr(module, "_HALT_AGAIN_S", 0.01)

    async def swallowing(*_: Any) -> Any:
        bench.begun.append(None)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        bench.begun[-1] = Ownership()
        return bench.begun[-1]

    monkeypatch.setattr(module, "take_over", swallowing)
    bench.partition.allow_take_over()
    await turns()
    await bench.partition.hold_take_over()
    assert bench.ownership.ended
    assert bench.partition.state is State.TAKING_OVER
    monkeypatch.setattr(module, "take_over", bench._take_over)
    bench.partition.renew()
    await bench.until(State.OWNED)
    assert len(bench.begun) == 2


async def test_a_rebalance_that_meets_the_end_of_the_worker_lets_go_once_and_takes_nothing_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[Ownership] = []

    async def end(ownership: Ownership) -> None:
        ends.append(ownership)
        await turns(20)  # the producer says goodbye

    monkeypatch.setattr(Ownership, "end", end)
    bench.partition.allow_take_over()
    await bench.until(State.OWNED)
    bench.ownership.fail(KafkaConnectionError())
    await bench.until(State.TAKING_OVER)
    await asyncio.gather(bench.partition.hold_take_over(), bench.partition.close())
    bench.partition.allow_take_over()
    await turns()
    assert (bench.partition.state, len(bench.begun), ends[0]) == (State.CLOSED, 1, bench.ownership)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "partition-0"]


async def test_take_overs_back_off_while_they_repeat(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        bench.slept += [seconds] * (seconds > 0)
        await sleep(0)

    monkeypatch.setattr(module.asyncio, "sleep", note)
    bench.partition.allow_take_over()
    for _ in range(7):
        await bench.until(State.OWNED)
        bench.ownership.trouble.set_exception(KafkaConnectionError())
        await bench.until(State.TAKING_OVER)
    assert bench.slept == sorted(bench.slept)
    assert bench.slept[-1] == bench.slept[-2] == 5.0


async def test_corrupt_store_is_restored_once_and_a_disk_that_loses_it_again_ends_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRY_S", (0.0,))
    bench.partition.allow_take_over()
    await bench.until(State.OWNED)
    bench.partition._on_error(CorruptStoreError("tables/p-0 is corrupt"))
    await bench.until(State.TAKING_OVER)
    await bench.until(State.OWNED)
    assert len(bench.begun) == 2
    assert bench.agent.broke == []
    bench.partition._on_error(CorruptStoreError("tables/p-0 is corrupt"))
    await bench.until(State.TAKING_OVER)
    await turns()
    (error,) = bench.agent.broke
    assert isinstance(error, StoreUnusableError)
    assert "check the disk" in str(error)


async def test_steady_ownership_begins_the_back_off_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEADY_S", -1.0)
    monkeypatch.setattr(module, "_RETRY_S", (0.0, 1000.0))
    bench.partition.allow_take_over()
    for _ in range(4):
        await bench.until(State.OWNED)
        bench.ownership.trouble.set_exception(KafkaConnectionError())
        await bench.until(State.TAKING_OVER)


async def test_a_commit_that_kafka_refuses_is_reduced_and_at_last_one_of_the_offset_alone(bench: Bench) -> None:
    outcomes = asyncio.ensure_future(bench.partition.commit(Commit(RECORD, (ENDED, OTHER), (OUTPUT,))))
    queue = bench.partition.context.queue
    letters: list[bytes | None] = []
    for reason in ("too large", "still too large"):
        await turns()
        (entry,) = queue.next_group()
        assert entry.commit.record is RECORD
        letters += [dict(one.headers)["error-message"] for one in entry.commit.outputs if one is not OUTPUT]
        if letters:
            assert entry.commit.changes == (ENDED,)
        entry.committed.set_exception(RecordRefusedError(reason))
    await turns()
    (entry,) = queue.next_group()
    assert entry.commit == Commit(RECORD)
    entry.committed.set_result(None)
    await outcomes
    assert letters == [b"Kafka rejects a record that this one leads to: too large"]
    assert bench.agent.broke == []


async def test_unexpected_error_of_a_partition_starts_it_over_and_ends_the_worker_only_if_it_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RETRY_S", (0.0,))
    bench.partition.allow_take_over()
    for number in range(module._MOST_UNEXPECTED + 1):
        assert bench.agent.broke == [], number
        await bench.until(State.OWNED)
        bench.ownership.trouble.set_exception(ValueError("odd"))
        await bench.until(State.TAKING_OVER)
    await turns()
    assert [type(error) for error in bench.agent.broke] == [ValueError]


@pytest.mark.parametrize("error", WORKER_ERRORS)
async def test_broken_invariant_ends_the_worker_at_once(bench: Bench, error: type[Exception]) -> None:
    bench.partition.allow_take_over()
    await bench.until(State.OWNED)
    bench.ownership.trouble.set_exception(error("it is broken"))
    await bench.until(State.TAKING_OVER)
    await turns()
    assert [type(error) for error in bench.agent.broke] == [error]


@pytest.mark.parametrize("error", [ValueError(SECRET), RecursionError(), OSError(24, SECRET), AssertionError()])
async def test_record_that_raises_anything_becomes_a_dead_letter(bench: Bench, error: Exception) -> None:
    bench.partition._contain(RECORD, raising(error))
    await turns()
    (entry,) = bench.partition.context.queue.next_group()
    assert entry.commit.record is RECORD
    (letter,) = entry.commit.outputs
    headers = dict(letter.headers)
    assert headers["error-code"] == b"invalid_request"
    assert type(error).__name__ in str(headers["error-message"])
    assert SECRET not in str(letter)
    entry.committed.set_result(None)


@pytest.mark.parametrize("kind", [kind for kind in ESCALATING if not issubclass(kind, CorruptStoreError)])
async def test_what_escalates_is_no_dead_letter_of_a_record(bench: Bench, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        bench.partition._contain(RECORD, raising(kind("x")))
    await turns()
    assert bench.partition.context.queue.next_group() == []


def raising(error: Exception) -> Any:
    def receive(_partition: Partition, _record: Record) -> None:
        raise error

    return receive


async def test_commits_hurry_once_they_hold_an_eighth_of_the_slots_and_a_request_waits_for_one(bench: Bench) -> None:
    bench.partition.allow_take_over()
    await bench.until(State.OWNED)
    partition, queue, most = (
        bench.partition,
        bench.partition.context.queue,
        bench.partition.context.settings.max_in_flight,
    )

    async def held() -> None:
        await asyncio.Event().wait()

    for number in range(most):
        partition.lanes.add(number, cast(Any, number), held)
    for _ in range(most // 8):
        partition.spawn(partition.commit(Commit(None)))
    await turns()
    assert len(queue.waiting) == most // 8
    assert not queue.urgent.is_set(), "no request waits for a slot"
    partition.lanes.add(most, cast(Any, most), held)
    partition.hurry_for_slots()
    assert queue.urgent.is_set()
    queue.waiting.pop()
    queue.urgent.clear()
    partition.hurry_for_slots()
    assert not queue.urgent.is_set(), "the slots are those of answers, which no transaction frees"
