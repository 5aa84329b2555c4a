"""Usage windows: counts each turn once, per minute, tenant and model, and publishes each minute to `usage`.

This task reads `turns` with its own consumer. The agent on `turns` waits for Milvus, and billing must not.

Each revision of a window is published exactly once, whichever process dies:

1. The counts (rows of the table `usage`), the position up to which turns are counted (`Progress.next`, one of those
   rows) and the published records are one commit: one transaction of the partition's producer.
2. Only the partition's owner writes the rows. The next owner starts the producer first, which fences the former owner,
   and then restores the rows. It sees the last commit, and no later one can follow.
3. It therefore continues at exactly that position. A read_committed consumer returns each turn once, in offset order.
4. A commit that is still queued when an ownership ends is cancelled together with the task that awaits it, before the
   next ownership begins (partition.py). If the outcome of a commit is unknown, 2 decides. No commit is built on
   stale rows: each ownership has one task, and it awaits each commit before it counts on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from aiokafka import ConsumerRecord

from app.delivery.commits.commit import Commit
from app.delivery.follower import TopicTask, follow
from app.delivery.partition import Partition
from app.delivery.record import TURNS, Outgoing, outgoing
from app.kafka.reading import cause_of
from app.prices import PriceList
from app.settings import Settings
from app.wire.codec import decode
from app.wire.error import WireError
from app.wire.ids import tenant_of
from app.wire.turn import Turn
from app.wire.usage import Latencies, UsageWindow
from models.interface.unexpected import type_and_line
from tables.records import Table
from tables.usage import BOUNDS_MS, Labels, Latency, Tally, WindowKey, Windows

log = logging.getLogger(__name__)

# A fetch returns as soon as there is a turn. A poll that returns nothing costs some 0.4 ms of processor time.
_POLL_MS = 5000
_LEAST_POLL_MS = 200
_AT_ONCE = 200  # turns counted before other tasks get to run
_EVERY_S = 1.0  # least time between two commits of one partition
_GRACE_WINDOWS = 5  # a turn that is later than these is counted in the current window
_COUNTS = [name for name in Tally.__struct_fields__ if name in UsageWindow.__struct_fields__ and name != "cost"]


class UsageWindows:
    def __init__(self, settings: Settings, prices: PriceList) -> None:
        self._settings = settings
        self._prices = prices

    def begin(self, partition: Partition) -> None:
        """Count until the ownership ends."""
        if self._settings.usage_window_s:
            partition.spawn(self._follow(partition))

    async def _follow(self, partition: Partition) -> None:
        windows = Windows.load(
            partition.ownership.store.scan(Table.USAGE),
            length=self._settings.usage_window_s * 1000,
            grace=_GRACE_WINDOWS * self._settings.usage_window_s * 1000,
        )
        count = partial(self._count, partition, windows)
        reader = partial(partition.context.clients.log_reader, wait_ms=_POLL_MS)
        await follow(partition.context.topic_partition(TURNS), reader, lambda: windows.next, count)

    async def _count(self, partition: Partition, windows: Windows, turns: TopicTask) -> None:
        clock = partition.ownership.clock
        while True:
            records, position = await turns.poll(_until_due(windows, clock.now()))
            await self._count_batch(records, windows, clock.now())
            windows.next = position
            if not records and windows.due_at is not None and windows.due_at <= clock.now():
                await _pass_time(turns, windows, clock.now())
            await self._publish(partition, windows)

    async def _count_batch(self, records: Iterable[ConsumerRecord], windows: Windows, now: int) -> None:
        for number, record in enumerate(records, 1):
            if cause_of(record):
                continue  # the agent on `turns` writes the dead letter
            try:
                turn = decode(Turn, record.value, record.headers)
                windows.count(turn.created_at, _labels(turn), self._tally(turn), now=now)
            except WireError:
                continue  # the agent on `turns` writes the dead letter
            except Exception as error:  # noqa: BLE001 - of this turn
                log.warning("turns[%s]@%s is not counted: %s", record.partition, record.offset, type_and_line(error))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _publish(self, partition: Partition, windows: Windows) -> None:
        outputs = tuple(self._record(partition, key, tally) for key, tally in windows.close())
        if rows := windows.drain():
            await partition.commit(Commit(None, rows, outputs))
            await asyncio.sleep(_EVERY_S)

    def _tally(self, turn: Turn) -> Tally:
        timing, usage = turn.timing, turn.usage
        asked = turn.created_at if timing is None else timing.requested_at
        first = None if timing is None else timing.first_token_at
        is_cached = turn.cached is not None
        return Tally(
            requests=1,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            cached_requests=int(is_cached),
            saved_tokens=usage.prompt_tokens + usage.completion_tokens if is_cached else 0,
            cost=self._prices.cost(turn.model_version, usage, is_cached=is_cached),
            first_token=Latency() if first is None else Latency.of(max(0, first - asked)),
            duration=Latency.of(max(0, turn.created_at - asked)),
        )

    def _record(self, partition: Partition, key: WindowKey, tally: Tally) -> Outgoing:
        tokens = tally.prompt_tokens + tally.completion_tokens
        window = UsageWindow(
            window_start=key.start,
            window_ms=key.length,
            tenant=key.tenant,
            model=key.model,
            route=key.route,
            experiment=key.experiment,
            arm=key.arm,
            partition=partition.number,
            cost=round(tally.cost, 9),
            cost_per_1k=round(1000 * tally.cost / tokens, 9) if tokens else 0.0,
            first_token_ms=_latencies(tally.first_token),
            duration_ms=_latencies(tally.duration),
            created_at=partition.ownership.clock.now(),
            **{name: getattr(tally, name) for name in _COUNTS},
        )
        return outgoing(self._settings, "usage", key.tenant.encode(), window)


def _labels(turn: Turn) -> Labels:
    tenant = tenant_of(turn.user_id) or turn.tenant or ""
    return tenant, turn.model_version, turn.route or "", turn.experiment or "", turn.arm or ""


async def _pass_time(turns: TopicTask, windows: Windows, now: int) -> None:
    """Advance the watermark to this time of the broker's clock if all turns have been counted."""
    if windows.next >= await turns.end():
        windows.advance(now)


def _until_due(windows: Windows, now: int) -> int:
    """How long to wait for turns, in milliseconds: until the next window is due, and at most `_POLL_MS`."""
    return _POLL_MS if windows.due_at is None else min(max(windows.due_at - now, _LEAST_POLL_MS), _POLL_MS)


def _latencies(latency: Latency) -> Latencies:
    return Latencies(latency.count, latency.sum, latency.max, BOUNDS_MS, latency.buckets)
