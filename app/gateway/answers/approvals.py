"""Which calls wait for an approval, and how those are decided that were open here: a gateway's copy of `waits`.

Each gateway reads all partitions, because a desk may ask any of them, and decides nothing: the first decision on
`controls` counts, and the worker that takes it says so on `waits`. Nothing is read before somebody asks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import msgspec
from aiokafka import ConsumerRecord, TopicPartition

from app.gateway.answers.waiting import WaitingAnswers
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError, lasting
from app.kafka.clients import consumer, start, stop
from app.search.kept_rows import up_to_end
from app.settings import Settings
from app.settings.kafka import TopicName
from app.wire.codec import decode
from app.wire.error import ErrorCode, WireError
from app.wire.waits import DecidedWait, Wait, WaitRecord
from tables.erasures import Scope
from tables.records import key_parts

_CURRENT_S = 5.0
_MOST_DECIDED = 1000
_POLL_MS = 1000

Key = tuple[str, ...]
"""The user and the request."""


class OpenApproval(NamedTuple):
    record: WaitRecord
    wait: Wait


class PastApproval(NamedTuple):
    """One that was open here, and how it is over."""

    record: WaitRecord
    wait: Wait
    decided: DecidedWait


class Approvals:
    def __init__(self, settings: Settings, waiting: WaitingAnswers, partitions: int) -> None:
        self._settings, self._waiting = settings, waiting
        self._partitions = [TopicPartition(settings.topic(TopicName.WAITS), number) for number in range(partitions)]
        self._open: dict[Key, tuple[WaitRecord, int]] = {}
        self._bytes = 0
        self.has_more = False
        self._past: OrderedDict[tuple[Key, str], PastApproval] = OrderedDict()
        self._awaited: dict[Key, set[asyncio.Future[WaitRecord | None]]] = {}
        self._changed = asyncio.Event()
        self._is_current = asyncio.Event()
        self._is_closing = False
        self._task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Whoever waits for news gets what there is."""
        self._is_closing = True
        self._tell()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def current(self) -> None:
        """Return once all that was written before the first call is read; raises `ApiError`."""
        if not self._waiting.is_on:
            return
        if self._task is None:
            self._task = asyncio.create_task(lasting("reading approvals", self._follow), name="approvals")
        try:
            async with asyncio.timeout(_CURRENT_S):
                await self._is_current.wait()
        except TimeoutError:
            raise ApiError(ErrorCode.UNAVAILABLE, "Kafka cannot be read now", retry_after_s=1) from None

    @property
    def open(self) -> list[OpenApproval]:
        """Those that wait longest first."""
        records = sorted((record for record, _ in self._open.values()), key=lambda one: one.since)
        return [OpenApproval(record, wait) for record in records for wait in record.waits if wait.kind == "approval"]

    @property
    def past(self) -> list[PastApproval]:
        return list(self._past.values())

    async def change(self, within_s: float) -> bool:
        """Wait for news; False if there are none within that time, or if the gateway stops."""
        if not self._is_closing:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._changed.wait()
                    return not self._is_closing
        return False

    async def newest(self, user_id: str, request_id: str) -> WaitRecord | None:
        """The newest record of the answer, also of one that has ended. Raises `ApiError`."""
        if (known := self._open.get((user_id, request_id))) is not None:
            return known[0]
        return await self._waiting.newest(user_id, request_id)

    @contextmanager
    def awaited(self, key: Key) -> Iterator[asyncio.Future[WaitRecord | None]]:
        """The next record of the answer that is read here; None for one that is erased."""
        future: asyncio.Future[WaitRecord | None] = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(key, set()).add(future)
        try:
            yield future
        finally:
            if (futures := self._awaited.get(key)) is not None:
                futures.discard(future)
                if not futures:
                    del self._awaited[key]

    def drop(self, scope: Scope, at: int) -> None:
        """What is erased up to then is not shown any more."""
        for key, (record, _) in list(self._open.items()):
            if scope.includes(record.user_id, record.conversation_id) and record.since <= at:
                self._forget(key)
        for past, one in list(self._past.items()):
            if scope.includes(one.record.user_id, one.record.conversation_id) and one.record.since <= at:
                del self._past[past]
        self._tell()

    async def _follow(self) -> None:
        self._is_current.clear()
        self._open.clear()
        self._bytes, self.has_more = 0, False
        records = consumer(self._settings.cluster)
        await start(records)
        try:
            records.assign(self._partitions)
            await records.seek_to_beginning(*self._partitions)
            async for record in up_to_end(records, self._partitions):
                self.read(record)
            self._is_current.set()
            self._tell()
            # What had no room is read once there is room.
            while not (self.has_more and 2 * self._bytes < bounds.APPROVALS_BYTES):
                for batch in (await records.getmany(timeout_ms=_POLL_MS)).values():
                    for record in batch:
                        self.read(record)
        finally:
            await stop(records)

    def read(self, record: ConsumerRecord) -> None:
        """Take a record of `waits`."""
        state = None
        try:
            key = key_parts(record.key or b"")
            if record.value is not None:
                state = decode(WaitRecord, record.value, record.headers)
        except (WireError, msgspec.MsgspecError):
            return  # not written by a worker
        before = self._forget(key)
        if state is None:
            for past in [one for one in self._past if one[0] == key]:
                del self._past[past]
        else:
            self._note_past(key, before, state)
            if state.state == "asleep" and any(wait.kind == "approval" for wait in state.waits):
                self._keep(key, state, len(record.value))
        for future in self._awaited.pop(key, ()):
            if not future.done():
                future.set_result(state)
        if before is not None or key in self._open:
            self._tell()

    def _note_past(self, key: Key, before: WaitRecord | None, state: WaitRecord) -> None:
        decided = {one.wait_id: one for one in state.decided}
        for wait in () if before is None else before.waits:
            if before is not None and wait.kind == "approval" and wait.wait_id in decided:
                self._past[key, wait.wait_id] = PastApproval(before, wait, decided[wait.wait_id])
        while len(self._past) > _MOST_DECIDED:
            self._past.popitem(last=False)

    def _keep(self, key: Key, state: WaitRecord, size: int) -> None:
        if self._bytes + size > bounds.APPROVALS_BYTES:
            self.has_more = True
            return
        self._open[key] = (state, size)
        self._bytes += size

    def _forget(self, key: Key) -> WaitRecord | None:
        if (known := self._open.pop(key, None)) is None:
            return None
        self._bytes -= known[1]
        return known[0]

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
