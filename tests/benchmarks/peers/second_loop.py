"""Parley's worker with its producers on an event loop of their own, in a second thread: what that would change.

A send hands its record over and has a future at once; all of one turn of a loop cross in one call. A transaction's
other calls wait for the other thread. It is no worker to serve with: an error of a send is seen at its delivery.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from app.delivery.clients import Clients
from tests.benchmarks.peers import parley_worker

Call = Callable[[], object]


class Crossing:
    """Calls that a loop makes in another one, once a turn for all of them."""

    def __init__(self, to: asyncio.AbstractEventLoop) -> None:
        self._to = to
        self._calls: list[Call] = []

    def call(self, call: Call) -> None:
        if not self._calls:
            asyncio.get_running_loop().call_soon(self._cross)
        self._calls.append(call)

    def _cross(self) -> None:
        calls, self._calls = self._calls, []
        self._to.call_soon_threadsafe(_all, calls)


def _all(calls: list[Call]) -> None:
    for call in calls:
        call()


class SecondLoop:
    """`here` is the worker's loop, which made it."""

    def __init__(self) -> None:
        self.here, self.there = asyncio.get_running_loop(), asyncio.new_event_loop()
        self.over, self.back = Crossing(self.there), Crossing(self.here)
        threading.Thread(target=self.there.run_forever, name="producers", daemon=True).start()


class ProducerThere:
    """What delivery calls of an `AIOKafkaProducer`; `make` makes the one that runs in the other loop."""

    def __init__(self, loop: Callable[[], SecondLoop], make: Callable[[], Any]) -> None:
        self._loop, self._make = loop, make
        self._producer: Any = None

    async def start(self) -> None:
        await self._wait(self._start)

    async def _start(self) -> None:
        self._producer = self._make()
        await self._producer.start()

    async def send(self, *given: Any, **named: Any) -> asyncio.Future[Any]:
        loop = self._loop()
        delivery: asyncio.Future[Any] = loop.here.create_future()
        loop.over.call(partial(loop.there.create_task, self._send(loop, delivery, given, named)))
        return delivery

    async def _send(self, loop: SecondLoop, delivery: asyncio.Future[Any], given: Any, named: Any) -> None:
        try:
            sent = await self._producer.send(*given, **named)
        except Exception as error:  # noqa: BLE001 - whatever it is, the delivery has it
            loop.back.call(partial(_fail, delivery, error))
            return
        sent.add_done_callback(lambda done: loop.back.call(partial(_copy, done, delivery)))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given, **named: self._wait(lambda: getattr(self._producer, name)(*given, **named))

    async def _wait(self, call: Callable[[], Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), self._loop().there))


def _fail(delivery: asyncio.Future[Any], error: BaseException) -> None:
    if not delivery.done():
        delivery.set_exception(error)


def _copy(done: asyncio.Future[Any], delivery: asyncio.Future[Any]) -> None:
    if delivery.done():
        return
    if (error := done.exception()) is not None:
        delivery.set_exception(error)
    else:
        delivery.set_result(done.result())


def _move_producers() -> None:
    loops: list[SecondLoop] = []

    def loop() -> SecondLoop:
        if not loops:
            loops.append(SecondLoop())
        return loops[0]

    def moved(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda clients, *given: ProducerThere(loop, lambda: make(clients, *given))

    for name in ("transactional_producer", "token_producer"):
        setattr(Clients, name, moved(getattr(Clients, name)))


if __name__ == "__main__":
    _move_producers()
    parley_worker.main()
