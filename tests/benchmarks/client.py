"""The user's side: asks as a `Load` says, and notes when every event of an answer is read."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator

from tests.benchmarks.load import Ask, Load, Reply

LEAD_S = 0.3
PATIENCE_S = 30.0

Send = Callable[[Ask, Reply], Awaitable[None]]


class Client:
    """Drives a load through `send`, which returns once the ask is on its way; readers call `received` and `ended`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._open: dict[str, Reply] = {}
        self._done: list[Reply] = []
        self._ended = asyncio.Condition()

    async def run(self, load: Load) -> list[Reply]:
        """Every reply, unanswered ones too: a system that has not answered after 30 s more has failed."""
        self._done, self._open = [], {}
        asks = load.asks(uuid.uuid4().hex[:10])
        if load.at_once:
            await self._closed_loop(load, asks)
        else:
            await self._open_loop(load, asks)
        try:
            async with asyncio.timeout(PATIENCE_S), self._ended:
                await self._ended.wait_for(lambda: not self._open)
        except TimeoutError:
            for reply in self._open.values():
                reply.failed = True
        return [*self._done, *self._open.values()]

    def received(self, request_id: str, tokens: int) -> None:
        if (reply := self._open.get(request_id)) is not None:
            reply.received(time.perf_counter(), tokens)

    async def ended(self, request_id: str, *, failed: bool = False) -> None:
        if (reply := self._open.pop(request_id, None)) is not None:
            reply.end, reply.failed = time.perf_counter(), failed
            self._done.append(reply)
            async with self._ended:
                self._ended.notify_all()

    async def _ask(self, ask: Ask, due: float) -> None:
        self._open[ask.request_id] = Reply(due)
        await self._send(ask, self._open[ask.request_id])

    async def _open_loop(self, load: Load, asks: Iterator[Ask]) -> None:
        began = time.perf_counter() + LEAD_S
        for at in load.arrivals():
            if (wait := began + at - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            await self._ask(next(asks), began + at)

    async def _closed_loop(self, load: Load, asks: Iterator[Ask]) -> None:
        until = time.perf_counter() + load.seconds
        for ask in itertools.islice(asks, load.at_once):
            await self._ask(ask, time.perf_counter())
        while time.perf_counter() < until:
            async with self._ended:
                await self._ended.wait_for(lambda: len(self._open) < load.at_once)
            await self._ask(next(asks), time.perf_counter())
