"""The records of `requests` by their ids: from memory, or read again from the topic.

A gateway that has not sent a request finds its record at the time that the id contains. All ids of a user that are
wanted at the same time are searched together: after the death of a gateway, each of its readers wants one.

A response that was deleted is found no more. Its deletion is a cancel with a header, on `controls`, which keeps its
records as long as `requests` does. New ones are heard while they are written (erasure/erasures.py); for older ones
`controls` is read from the response's creation on.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
from aiokafka import ConsumerRecord, TopicPartition

from app.gateway.answers.archive import MARGIN_S, scan, time_of
from app.gateway.callers.fair_queue import FairQueue
from app.gateway.edge import bounds
from app.gateway.edge.errors import ApiError, error_of
from app.gateway.edge.metrics import GatewayMetrics
from app.gateway.erasure.erasures import ErasureBook
from app.reader.rule import Key
from app.settings import Settings
from app.wire.codec import HeaderPairs, decode, is_withdrawal
from app.wire.control import Cancel, Control
from app.wire.error import WireError
from app.wire.ids import partition_for
from app.wire.record_size import held_bytes
from app.wire.request import Request

_AT_ONCE = 4
_MOST_WITHDRAWN = 100_000


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, the headers of its record, and an upper bound of their memory in bytes."""

    request: Request
    headers: HeaderPairs
    size: int


class AskedRequests:
    def __init__(self, settings: Settings, erasures: ErasureBook, partitions: int, metrics: GatewayMetrics) -> None:
        self._settings = settings
        self._erasures = erasures
        self._partitions = partitions
        self._metrics = metrics
        self._turns = FairQueue(_AT_ONCE, "searches of requests")
        self._held: OrderedDict[Key, Asked] = OrderedDict()
        self._bytes = 0
        self._withdrawn: OrderedDict[Key, None] = OrderedDict()
        self._wanted: dict[str, dict[str, asyncio.Future[Asked | None]]] = {}
        self._searching: dict[str, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        tasks = list(self._searching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def find(self, user_id: str, request_id: str) -> Asked | None:
        """The request; None if it is unknown, too old, erased or withdrawn. Raises `ApiError` if Kafka is away."""
        made_at = time_of(request_id)
        if made_at is None or made_at + self._settings.requests_retention_s < time.time():
            return None
        key = (user_id, request_id)
        if key in self._withdrawn:
            return None
        asked = self._held.get(key)
        if asked is None:
            asked = await self._searched(user_id, request_id)
        else:
            self._held.move_to_end(key)
        if asked is None or self._erasures.at(user_id, asked.request.conversation_id) >= made_at * 1000:
            return None
        return asked

    async def _searched(self, user_id: str, request_id: str) -> Asked | None:
        wanted = self._wanted.setdefault(user_id, {})
        future = wanted.setdefault(request_id, asyncio.get_running_loop().create_future())
        if user_id not in self._searching:
            self._searching[user_id] = asyncio.create_task(self._search(user_id), name="search of requests")
        return await asyncio.shield(future)

    def remember(self, request: Request, headers: HeaderPairs) -> None:
        """Keep a request that was sent here, as long as there is room."""
        value = msgspec.json.encode(request)
        self._hold(Asked(request, headers, held_bytes(request.user_id.encode(), value, headers)))

    def withdraw(self, user_id: str, request_id: str) -> None:
        """The response is deleted. Older deletions than these are found in `controls`."""
        self._withdrawn[user_id, request_id] = None
        if len(self._withdrawn) > _MOST_WITHDRAWN:
            self._withdrawn.popitem(last=False)
        self._drop((user_id, request_id))

    def _hold(self, asked: Asked) -> None:
        key = (asked.request.user_id, asked.request.request_id)
        self._drop(key)
        if key in self._withdrawn:
            return
        self._held[key] = asked
        self._bytes += asked.size
        while self._bytes > bounds.ASKED_BYTES:
            self._drop(next(iter(self._held)))

    def _drop(self, key: Key) -> None:
        if (held := self._held.pop(key, None)) is not None:
            self._bytes -= held.size

    async def _search(self, user_id: str) -> None:
        try:
            while wanted := self._wanted.pop(user_id, None):
                try:
                    async with self._turns.turn(user_id, goes_on=True):
                        found = await self._find_all(user_id, wanted)
                except Exception as failure:  # noqa: BLE001 - those who wait get it
                    error = failure if isinstance(failure, ApiError) else error_of(failure, "a search of requests")
                    for future in wanted.values():
                        future.set_exception(error)
                        future.exception()  # whoever has waited may be gone
                else:
                    for request_id, future in wanted.items():
                        future.set_result(found.get(request_id))
        finally:
            del self._searching[user_id]

    async def _find_all(self, user_id: str, wanted: Collection[str]) -> dict[str, Asked]:
        found: dict[str, Asked] = {}
        missing = sorted(wanted, key=lambda one: time_of(one) or 0.0)
        while missing:
            await self._find_from(user_id, missing, found)
            # An id is searched no further than a number of records behind its time, and the next ones from theirs.
            missing = [one for one in missing[1:] if one not in found]
        if found:
            await self._read_withdrawals(user_id, min(found, key=lambda one: time_of(one) or 0.0))
        for asked in found.values():
            self._hold(asked)
        return {one: asked for one, asked in found.items() if (user_id, one) not in self._withdrawn}

    async def _find_from(self, user_id: str, wanted: Collection[str], found: dict[str, Asked]) -> None:
        """Search from the time of the first id on."""
        self._metrics.scans.inc()
        records = self._of(user_id, "requests", next(iter(wanted)), bounds.SCAN_RECORDS)
        left = set(wanted) - found.keys()
        async with aclosing(records):
            async for record in records:
                request = _request(record) if record.key == user_id.encode() else None
                if request is not None and request.request_id in left:
                    size = held_bytes(record.key, record.value, record.headers)
                    found[request.request_id] = Asked(request, tuple(record.headers), size)
                    left.discard(request.request_id)
                    if not left:
                        return

    async def _read_withdrawals(self, user_id: str, first: str) -> None:
        records = self._of(user_id, "controls", first, sys.maxsize)
        async with aclosing(records):
            async for record in records:
                if record.key == user_id.encode() and is_withdrawal(record.headers):
                    self.withdraw(user_id, _cancelled(record))

    def _of(self, user_id: str, topic: str, request_id: str, most: int) -> AsyncGenerator[ConsumerRecord, None]:
        partition = TopicPartition(self._settings.topic(topic), partition_for(user_id, self._partitions))
        since_ms = int(((time_of(request_id) or 0.0) - MARGIN_S) * 1000)
        return scan(self._settings.cluster, partition, most, since_ms=since_ms)


def _request(record: ConsumerRecord) -> Request | None:
    try:
        return decode(Request, record.value, record.headers)
    except WireError:
        return None  # the worker writes a dead letter for it


def _cancelled(record: ConsumerRecord) -> str:
    try:
        control = decode(Control, record.value, record.headers)
    except WireError:
        return ""
    return control.request_id if isinstance(control, Cancel) else ""
