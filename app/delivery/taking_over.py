"""Become the owner of a partition.

1. Start the partition's transactional producer. The broker fences the former owner and ends its open transaction.
2. Read the handover. A worker that has owned the partition until now and finds another worker's epoch in it was
   replaced meanwhile, and must stop.
3. Restore the store from the changelogs.
4. Write the fence, in a transaction that commits the handover with the new epoch.
5. Read the events before the fence that belong to requests without an end.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from app.delivery.clients import stop_client
from app.delivery.commits.changelog import TOMBSTONES_MS
from app.delivery.commits.handover import Handover
from app.delivery.ownership import (
    FencedError,
    Ownership,
    PartitionContext,
    Start,
    committed_handover,
    handover_of,
)
from app.delivery.record import REQUESTS, SOURCES
from app.delivery.resume.tokens import TokenLog
from app.kafka.broker_clock import BrokerClock
from tables.store import PartitionStore
from tables.store_errors import StoreError

# Changelogs keep tombstones for a day (commits/changelog.py). Half of it leaves room for a slow restore, and for a
# worker whose clock is hours off.
TOMBSTONES_KEPT_MS = TOMBSTONES_MS // 2


async def take_over(context: PartitionContext, mine: set[int]) -> Ownership:
    """Become the owner. `mine` are the epochs that this worker has held without a break; empty after an assignment.

    Raises:
        FencedError: another worker has owned the partition since.
        RETRIABLE_ERRORS: the broker could not be reached; nothing is held, try again.
        StoreError: the store cannot be opened, or is corrupt; after a CorruptStoreError, try again.
    """
    if mine:
        _check_unbroken(await committed_handover(context), mine, context)
    producer = context.clients.transactional_producer(context.number)
    reader = context.clients.log_reader()
    store: PartitionStore | None = None
    try:
        await asyncio.gather(producer.start(), reader.start())
        start = await _start(context, reader, mine)
        store = await open_store(context)
        ownership = _own(context, producer, await context.token_producer.current(), store, start)
        await ownership.restore(reader)
        await ownership.write_fence(mine)
        await ownership.read_log(reader)
        await stop_client(reader)
    except BaseException:
        await _give_up(store, producer, reader)
        raise
    mine.clear()
    mine.add(ownership.epoch)
    return ownership


async def _give_up(store: PartitionStore | None, producer: AIOKafkaProducer, reader: AIOKafkaConsumer) -> None:
    """Close the store first, because the rest can be cancelled; a store that stays open locks out the next owner."""
    if store is not None:
        store.close()
    await stop_client(producer)
    await stop_client(reader)


async def _start(context: PartitionContext, reader: AIOKafkaConsumer, mine: set[int]) -> Start:
    committed = await context.clients.committed(context.number)
    handover = handover_of(committed[REQUESTS])
    if mine:
        _check_unbroken(handover, mine, context)
    # Ours from here on, whatever the outcome of the fence's transaction: only a later take-over can commit after it.
    mine.add(handover.epoch)
    first = await reader.beginning_offsets([context.topic_partition(topic) for topic in SOURCES])
    heads = {topic: max(committed[topic].offset, first[context.topic_partition(topic)]) for topic in SOURCES}
    return Start(handover, heads, {topic: handover_of(committed[topic]).ahead for topic in SOURCES})


def _check_unbroken(handover: Handover, mine: set[int], context: PartitionContext) -> None:
    if handover.epoch not in mine:
        raise FencedError(
            f"partition {context.number} was taken over by another worker (epoch {handover.epoch}, own {max(mine)})"
        )


async def open_store(context: PartitionContext) -> PartitionStore:
    """Open the store in a thread: RocksDB reads its log, and a wipe deletes files."""
    now_ms = time.time_ns() // 1_000_000
    call = partial(context.open_store, context.store_path, now_ms=now_ms, tombstones_kept_ms=TOMBSTONES_KEPT_MS)
    opening = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(StoreError):
            (await opening).close()  # a store that stays open locks out the next owner
        raise


def _own(
    context: PartitionContext,
    producer: AIOKafkaProducer,
    token_producer: AIOKafkaProducer,
    store: PartitionStore,
    start: Start,
) -> Ownership:
    def failed(error: BaseException) -> None:
        context.token_producer.retire(token_producer)
        ownership.fail(error)

    clock = BrokerClock()
    token_log = TokenLog(
        token_producer,
        context.settings.topic("tokens"),
        context.number,
        wire_format=context.settings.wire_format,
        on_failure=failed,
        on_refused=context.too_large.add,
        clock=clock,
        pace=context.token_producer.pace,
    )
    ownership = Ownership(context, producer, token_log, store, start, clock)
    return ownership
