"""Wakes answers whose time is over, ends the time of approvals, and repairs what is left of others.

Heads of rows are scanned once a minute, a thousand in a step. What is due within the next minute and a half is kept in
a heap, so a wake is late by a step of the event loop. A scan also

    counts      those that sleep, for the limits of the policy
    repeats     in `tokens` what they have said, before its retention takes it away
    wakes again those whose waking record is lost, because no worker has run for as long as `requests` keeps it
    deletes     rows of answers that have ended without their stage

Without answers that sleep, nothing of this runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from app.delivery.accepted import RequestKey
from app.delivery.commits.commit import Commit
from app.delivery.partition import Partition
from app.features.answer_steps import tell_calls
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.approvals import expiries, timed_out
from app.features.waits.schedule import Count
from app.features.waits.states import ENDED, state_record
from app.features.waits.wake import Woken, commit, wake, wake_with
from tables import records
from tables.asleep import Head, Sleep, no_rows
from tables.records import Table
from tables.tool_calls import NO_ROUNDS

log = logging.getLogger(__name__)

_SCAN_S = 60.0
_AT_ONCE = 1000
_REST_S = 0.02
_WAKES = 100
_READ_S = 10.0
_TOLD_S = 28 * 86_400
"""`waits` keeps a record for some days longer (app/kafka/topics.py)."""
_LOST_MS = 60_000
"""A woken record reaches `requests` this long after it was decided, at the latest."""


class WaitClock:
    def __init__(self, tools: ToolsOverKafka) -> None:
        self._tools = tools

    def begin(self, partition: Partition) -> None:
        """Run until the ownership ends."""
        partition.spawn(self._run(partition))

    async def _run(self, partition: Partition) -> None:
        sleepers, clock = partition.ownership.sleepers, asyncio.get_running_loop().time
        schedule = self._tools.calls_of(partition.ownership).schedule
        while True:
            await sleepers.some.wait()
            await self._scan(partition)
            scan_at = clock() + _SCAN_S
            while sleepers.some.is_set() and (left_s := scan_at - clock()) > 0:
                schedule.changed.clear()
                await self._wake_due(partition)
                if (due := schedule.next_due) is not None:
                    left_s = min(left_s, max(0.001, (due - partition.ownership.clock.now()) / 1000))
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await schedule.changed.wait()

    async def _wake_due(self, partition: Partition) -> None:
        ownership = partition.ownership
        calls = self._tools.calls_of(ownership)
        due = calls.schedule.pop_due(ownership.sleepers, ownership.clock.now())
        if not due:
            return
        has_calls = any(calls.decided(key) is not None for key in due)
        with suppress(TimeoutError):  # a result that is there counts, unless it cannot be read
            async with asyncio.timeout(_READ_S):
                if has_calls:
                    await calls.read_to_end()
        for begin in range(0, len(due), _WAKES):
            await self._wake(partition, due[begin : begin + _WAKES])

    async def _wake(self, partition: Partition, due: Sequence[RequestKey]) -> None:
        ownership = partition.ownership
        calls, now = self._tools.calls_of(ownership), ownership.clock.now()
        keys = [key for key in due if (head := ownership.sleepers.head(key)) is not None and head.is_due(now)]
        if not keys:
            return
        decided, woken, before = {}, [], {}
        for key in keys:
            rounds, head = calls.decided(key), ownership.sleepers.head(key)
            if rounds is None or head is None or (head.deadline is not None and head.deadline <= now):
                woken.append(wake(partition, key, rounds or NO_ROUNDS))
                continue
            before[key], decided[key] = rounds, (late := timed_out(rounds, now))
            woken.append(Woken((calls.decide(key, late),), expiries(self._tools.settings, key, late, now)))
            woken.append(wake_with(partition, key, late))
            if (head := ownership.sleepers.head(key)) is not None and head.until > now:
                calls.schedule.watch(key, head, now)
        await commit(partition, keys, woken)
        for key, late in decided.items():
            tell_calls(partition, key, before[key], late, now)
        calls.settle(decided)

    async def _scan(self, partition: Partition) -> None:
        sleepers, count, is_any = partition.ownership.sleepers, Count(), False
        calls = self._tools.calls_of(partition.ownership)
        for number, (key, head) in enumerate(sleepers.all(), start=1):
            is_any = True
            if head.state is Sleep.ASLEEP:
                count.add(head)
                calls.schedule.watch(key, head, partition.ownership.clock.now())
                await self._repeat(partition, key, head)
            elif key not in sleepers.under_way:
                await self._repair(partition, key, head)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(_REST_S)
        calls.schedule.count = count
        if not is_any and not sleepers.under_way:
            sleepers.some.clear()
            calls.rest()

    async def _repeat(self, partition: Partition, key: RequestKey, head: Head) -> None:
        """Say again what `tokens` will not keep for long. Readers who have it notice nothing."""
        ownership, settings = partition.ownership, self._tools.settings
        now = ownership.clock.now()
        if now - head.told_at < min(settings.tokens_retention_s, _TOLD_S) * 500:
            return
        if (sleeper := ownership.sleepers.get(key)) is None:
            return
        begin, log_of = ownership.token_log.position, ownership.token_log
        copies = [msgspec.structs.replace(one, copy=True) for one in sleeper.answer.segments]
        sent = [await log_of.send(segment, sleeper.answer.key) for segment in copies]
        await log_of.delivered(sent)
        if ownership.sleepers.head(key) != head or key in ownership.sleepers.under_way:
            return  # it has woken meanwhile, and is told again when it has to be
        rounds = self._tools.calls_of(ownership).decided(key) or NO_ROUNDS
        head = msgspec.structs.replace(head, told_at=now, tokens_offset=begin)
        change = ownership.sleepers.decide(key, head)
        await commit(partition, [key], [Woken((change,), (state_record(settings, key, head, rounds),))])

    async def _repair(self, partition: Partition, key: RequestKey, head: Head) -> None:
        """An answer is awake, and nothing of it is in flight: its record is to come, or there is none."""
        ownership = partition.ownership
        if key in ownership.inflight_requests:
            return
        if ownership.store.get(Table.ENDED, records.key(*key)) is not None:
            await partition.commit(
                Commit(None, no_rows(*key), (state_record(self._tools.settings, key, head, state=ENDED),))
            )
        elif ownership.watermark.at is not None and head.woken_at + _LOST_MS < ownership.watermark.at:
            log.warning(
                "partition %s: the record that wakes request %s is lost; it is woken again", partition.number, key
            )
            await commit(partition, [key], [wake(partition, key)])
