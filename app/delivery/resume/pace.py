"""Fewer and larger token events while a worker draws many tokens.

An event costs the worker, the broker and each reader the same, however many tokens it holds. So a worker spaces the
events of its answers under load; the tokens that the engine draws meanwhile become one event:

    many undelivered   from `busy_at` on, an answer waits for the delivery of its last event
    many tokens        from `busy_rate` tokens a second on, an answer waits for the end of the current window

All answers share the windows, so their events leave in one produce request. Windows grow with the rate:

       500 tokens/s     5 ms
     1,000             10
     5,000 and more    50: twenty events a second for each answer

The first event of an answer has none before it and never waits. The last one leaves with the answer's end, as soon as
the model has come to it.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer

from app.delivery.clients import Clients, start_client, stop_client
from app.process.recent_rate import RecentRate
from models.interface.generation import Stream

LONGEST_S = 0.05


class TokenPace:
    """Shared by all partitions of a worker. `undelivered` counts the events that are sent and not delivered yet."""

    def __init__(self, *, busy_at: int = 16, busy_rate: float = 500.0, window_s_per_rate: float = 1e-5) -> None:
        self.undelivered = 0
        self._busy_at = busy_at
        self._busy_rate = busy_rate
        self._window_s_per_rate = window_s_per_rate
        self._tokens = RecentRate()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_behind(self) -> bool:
        """Whether an answer should wait for the delivery of its last event before it sends the next one."""
        return self.undelivered >= self._busy_at

    def count(self, tokens: int) -> None:
        self._tokens.add(tokens, asyncio.get_running_loop().time())

    @property
    def window_s(self) -> float:
        """Length of a window that opens now; 0: no window."""
        rate = self._tokens.value
        return min(rate * self._window_s_per_rate, LONGEST_S) if rate >= self._busy_rate else 0.0

    async def end_of_window(self, stream: Stream | None = None) -> None:
        """Wait for the end of the current window, which the first to wait opens, or for that of the stream."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            if not (window_s := self.window_s):
                return
            loop.call_later(window_s, self._close)
        self._waiting.append(end := loop.create_future())
        if stream is not None:
            stream.on_end(lambda: _wake(end))
        await end

    def _close(self) -> None:
        for end in self._waiting:
            _wake(end)
        self._waiting.clear()


def _wake(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)


class TokenProducer:
    """The idempotent producer that all partitions of a worker share for token events, replaced after a failure.

    After a failed batch, its sequence number no longer matches the broker's, so all further sends would fail.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.pace = TokenPace()
        self._current: AIOKafkaProducer | None = None
        self._starting = asyncio.Lock()
        self._stopping: set[asyncio.Task[None]] = set()

    async def current(self) -> AIOKafkaProducer:
        """A working producer. Raises one of `RETRIABLE_ERRORS` if the broker cannot be reached."""
        async with self._starting:
            if self._current is None:
                producer = self._clients.token_producer()
                await start_client(producer)
                self._current = producer
            return self._current

    def retire(self, producer: AIOKafkaProducer) -> None:
        """Make the next `current` create a new producer. Of several reports about one producer, the first counts."""
        if self._current is producer:
            self._current = None
            task = asyncio.create_task(stop_client(producer))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    async def stop(self) -> None:
        if self._current is not None:
            self.retire(self._current)
        await asyncio.gather(*self._stopping)
