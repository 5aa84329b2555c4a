"""Committing: records that Kafka refuses, and fences behind a lost tail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError
from aiokafka.structs import OffsetAndMetadata, RecordMetadata, TopicPartition

from app.delivery.commits.commit import MOST_FENCES, Commit, CommitQueue, GroupCommitter, RecordRefusedError
from app.delivery.commits.handover import Handover, Offsets, decode_handover
from app.delivery.commits.pacer import CommitPacer
from app.delivery.record import REQUESTS, SOURCES, TURNS, Outgoing, Record
from app.settings import Settings
from app.wire.audit import AuditAction, AuditRecord
from tables.store_errors import CorruptStoreError
from tests.simulation.memory_store import Disk, MemoryStore
from tests.virtual_time import in_virtual_time

SMALL, LARGE = Outgoing("turns", b"k", b"small"), Outgoing("turns", b"k", b"large")


class Producer:
    """Appends to one log; refuses what is large, when it is sent or when it is delivered."""

    def __init__(self, *, late: bool = False, end: int = 0) -> None:
        self.late = late
        self.end = end
        self.open: list[bytes | None] = []
        self.committed: list[list[bytes | None]] = []
        self.heads: list[tuple[dict[TopicPartition, OffsetAndMetadata], str]] = []
        self.aborts = 0

    async def begin_transaction(self) -> None:
        self.open = []

    async def send(self, _topic: str, value: bytes | None, **_: Any) -> asyncio.Future[RecordMetadata]:
        delivery: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        if value == b"large" and not self.late:
            raise MessageSizeTooLargeError
        if value == b"large":
            delivery.set_exception(MessageSizeTooLargeError())
            return delivery
        if value == b"away":
            raise KafkaConnectionError
        delivery.set_result(RecordMetadata("t", 0, None, self.end, -1, 0, -1))
        self.end += 1
        self.open.append(value)
        return delivery

    async def send_offsets_to_transaction(self, heads: Any, group: str) -> None:
        self.heads.append((dict(heads), group))

    async def commit_transaction(self) -> None:
        self.committed.append(self.open)

    async def abort_transaction(self) -> None:
        self.aborts += 1


def committer_of(
    producer: Producer,
    queue: CommitQueue,
    pacer: CommitPacer | None = None,
    offsets: dict[str, Offsets] | None = None,
) -> GroupCommitter:
    if offsets is None:
        offsets = {REQUESTS: Offsets.resume(0)}
        for offset in range(5):
            offsets[REQUESTS].add(offset, 0)
    of_requests = offsets[REQUESTS]
    return GroupCommitter(
        Settings(_env_file=None),
        0,
        producer=cast(Any, producer),
        store=MemoryStore.open_on(Disk(), Path("p"), owner="test"),
        offsets=offsets,
        queue=queue,
        pacer=pacer or CommitPacer(),
        handover=lambda finished, epoch: Handover(of_requests.head(finished), epoch),
    )


def commit(offset: int, *outputs: Outgoing) -> Commit:
    return Commit(Record(REQUESTS, 0, offset, 0, b"k", b"v"), (), outputs)


@pytest.mark.parametrize("late", [False, True])
@in_virtual_time
async def test_record_that_kafka_refuses_ends_its_own_finish_alone(late: bool) -> None:
    queue, producer = CommitQueue(), Producer(late=late)
    waits = [queue.put(commit(0, SMALL)), queue.put(commit(1, LARGE)), queue.put(commit(2, SMALL))]
    running = asyncio.ensure_future(committer_of(producer, queue).run())
    async with asyncio.timeout(60):
        await waits[0]
        with pytest.raises(RecordRefusedError):
            await waits[1]
        await waits[2]
    running.cancel()
    assert producer.committed == [[b"small"], [b"small"]]
    assert producer.aborts == 2


@in_virtual_time
async def test_broker_that_is_away_fails_the_group_and_refuses_nothing() -> None:
    queue, producer = CommitQueue(), Producer()
    wait = queue.put(commit(0, Outgoing("turns", b"k", b"away")))
    with pytest.raises(KafkaConnectionError):
        await committer_of(producer, queue).run()
    assert not wait.done()
    assert len(queue.waiting) == 1


@pytest.mark.parametrize(("end", "above", "epoch"), [(90, 80, 90), (90, 95, 96), (0, MOST_FENCES + 10, 0)])
@in_virtual_time
async def test_fence_stands_above_the_epoch_of_a_lost_tail_where_that_is_not_far(
    end: int, above: int, epoch: int
) -> None:
    mine: set[int] = set()
    producer = Producer(end=end)
    receipt = await committer_of(producer, CommitQueue()).fence(SMALL, mine, above=above)
    assert (receipt.offset, mine) == (epoch, {epoch})
    assert len(producer.committed) == 1, "all of them are one transaction"


@pytest.mark.parametrize("urgent", [False, True])
@in_virtual_time
async def test_group_waits_for_more_commits_only_while_none_is_urgent(urgent: bool) -> None:
    queue, producer = CommitQueue(), Producer()
    pacer = CommitPacer(per_s=5.0, burst=1, longest_s=60.0)
    running = asyncio.ensure_future(committer_of(producer, queue, pacer).run())
    async with asyncio.timeout(60):
        await queue.put(commit(0, SMALL))
        second = queue.put(commit(1, SMALL))
        await asyncio.sleep(0.02)
        third = queue.put(commit(2, SMALL))
        if urgent:
            queue.hurry()
            await asyncio.sleep(0.02)
            assert second.done()
        else:
            assert not second.done()
        await asyncio.gather(second, third)
    running.cancel()
    assert producer.committed == [[b"small"], [b"small", b"small"]]


@in_virtual_time
async def test_queue_without_commits_is_never_urgent() -> None:
    queue = CommitQueue()
    queue.hurry()
    queue.put(commit(0))
    assert not queue.urgent.is_set()
    queue.hurry()
    queue.next_group()
    assert not queue.urgent.is_set()


@in_virtual_time
async def test_a_transaction_commits_the_head_of_each_topic_that_it_finishes() -> None:
    queue, producer = CommitQueue(), Producer()
    offsets = {topic: Offsets.resume(0) for topic in SOURCES}
    for topic in SOURCES:
        for offset in range(3):
            offsets[topic].add(offset, 0)
    committer = committer_of(producer, queue, offsets=offsets)
    committer.epoch = 7
    waits = [queue.put(commit(0)), queue.put(Commit(Record(TURNS, 0, 0, 0, b"k", b"v")))]
    running = asyncio.ensure_future(committer.run())
    async with asyncio.timeout(60):
        await asyncio.gather(*waits)
    running.cancel()
    ((heads, group),) = producer.heads
    assert group == Settings(_env_file=None).group
    assert {at.topic: head.offset for at, head in heads.items()} == {"requests": 1, "turns": 1}
    handover = decode_handover(1, heads[TopicPartition("requests", 0)].metadata)
    assert (handover.head, handover.epoch) == (1, 7)


@in_virtual_time
async def test_commit_that_cannot_be_prepared_is_refused_and_its_neighbours_are_made() -> None:
    queue, producer = CommitQueue(), Producer()
    committer = committer_of(producer, queue)
    broken = AuditRecord(action=AuditAction.SEARCH, outcome="done", user_id="\ud800", at=1)
    bad = queue.put(Commit(None, audit=(broken,)))
    good = [queue.put(Commit(None, outputs=(SMALL,))) for _ in range(2)]
    running = asyncio.ensure_future(committer.run())
    async with asyncio.timeout(60):
        await asyncio.gather(*good)
        with pytest.raises(RecordRefusedError):
            await bad
    running.cancel()


@in_virtual_time
async def test_corrupt_store_is_the_partitions_trouble_and_no_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    def corrupt(_store: object) -> None:
        raise CorruptStoreError("block checksum mismatch")

    monkeypatch.setattr("app.delivery.commits.commit.head_of", corrupt)
    queue = CommitQueue()
    waiting = queue.put(Commit(None, outputs=(SMALL,)))
    with pytest.raises(CorruptStoreError):
        await committer_of(Producer(), queue).run()
    assert not waiting.done(), "it is committed once the store is restored"
