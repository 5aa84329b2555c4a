"""What only makes Faust faster. All of it could be deleted without a change of behaviour.

Each figure is a worker's processor time per request without the patch, in that of a worker with it in the same round:
the median, and the least and the most of single rounds. The `paced` engine, 12 tokens an answer, 4 partitions, a
machine with two cores that did other work, too. A second worker with all patches had 1.03 (0.65 to 1.36).
"""

from __future__ import annotations

import asyncio
import inspect
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from faust.tables.manager import TableManager
from faust.transport.consumer import Consumer
from mode.services import Service, WaitResults
from mode.threads import QueueServiceThread
from mode.utils.futures import maybe_async

from app.process.recent_rate import RecentRate

# How long the fetches of an unhurried topic pause, and from how many records a second on.
ROUND_S = 0.1
OFTEN = 30
AT_ONCE_S = 0.005


def quick_loop(usual: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """A loop of uvloop in place of this one, where it is installed: the loop and its sockets in C.

    1.06 (1.05 to 1.08) where the loop is full, 180 requests/s, 4 rounds.
    """
    try:
        import uvloop  # noqa: PLC0415 - it has no wheels for some machines
    except ImportError:
        return usual
    usual.close()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


class _Task:
    """Takes the place of mode's `WorkerThread`."""

    def __init__(self, service: SameLoop) -> None:
        self._service = service

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._service.serve())

    def stop(self) -> None:
        """The service has shut down when mode calls this; a thread would be joined here."""


class SameLoop(QueueServiceThread):
    """A service that mode starts in a thread of its own, here in the event loop that starts it. Mixed into a subclass
    of `QueueServiceThread`, which is then created with `thread_loop` = `loop`.

    Faust runs its consumer in a thread, so each poll crosses over to that thread's loop and back: two wake-ups, two
    more turns at the interpreter, and a queue whose worker starts tasks to wait for it. 1.16 (0.89 to 1.73) at 12
    requests/s, 14 rounds; idle 7.5 instead of 6.2 ms/s.

    Heartbeats now stop when the application's loop is blocked: with a session of 8 s, blocks of 2 and 5 s are survived,
    and one of 10 s costs the partitions. A worker whose loop is blocked for a whole session delivers nothing either,
    and should lose them. app/telemetry/loop_lag.py logs each block of over a second, and the code that causes it.
    """

    abstract = True
    Worker = _Task

    async def serve(self) -> None:
        """Run until the service is stopped. `start` raises what goes wrong at first, `crash` reports the rest."""
        try:
            await self._serve()
        except Exception:  # noqa: BLE001 - reported by `_serve`
            self.set_shutdown()

    async def call_thread(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await maybe_async(fun(*args, **kwargs))

    async def _gather_remaining_tasks(self) -> None:
        """Disabled: mode cancels all tasks of the service's loop, which would be those of the application."""


class QuickDelivery(Service):
    """Mixed into Faust's consumer."""

    async def wait_first(self, *waited: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109 - Faust's
        """Faust delivers each record through this method, together with three other waits, as four tasks and several
        iterations of the loop. A record hardly ever has to wait, so its coroutine is tried first.

        1.15 (1.05 to 1.38) at 50 requests/s, 6 rounds; 1.07 (0.99 to 1.60) at 12, 8 rounds.
        """
        first, *others = waited
        if timeout is not None or not inspect.iscoroutine(first):
            return await super().wait_first(*waited, timeout=timeout)
        try:
            blocked = first.send(None)
        except BaseException as done:
            for other in filter(inspect.iscoroutine, others):
                other.close()
            if isinstance(done, StopIteration):
                return WaitResults([first], [done.value], self.should_stop)
            raise
        return await super().wait_first(_rest(first, blocked), *others)


async def _rest(begun: Coroutine[Any, Any, Any], blocked: Any) -> Any:
    """The rest of a coroutine that has started and waits for `blocked`."""
    return await _steps(begun, blocked)


@types.coroutine
def _steps(begun: Coroutine[Any, Any, Any], blocked: Any) -> Generator[Any, Any, Any]:
    while True:
        try:
            sent = yield blocked
        except GeneratorExit:
            begun.close()
            raise
        except BaseException as error:  # noqa: BLE001 - handed on
            step = partial(begun.throw, error)
        else:
            step = partial(begun.send, sent)
        try:
            blocked = step()
        except StopIteration as done:
            return done.value


def messages_from(event: Any, stream: Any) -> Iterator[Any]:
    """The event's message, and what else waits for the stream, for a few milliseconds.

    Faust gives a stream one record in each iteration of the loop, and the loop of a busy worker has some hundreds in a
    second. 17,000 requests of one user on a busy partition were read past in 24 s, now in 6.
    """
    yield event.message
    queue, until = stream.channel.queue, time.monotonic() + AT_ONCE_S
    while not queue.empty() and time.monotonic() < until:
        yield queue.get_nowait().message


class NoGaps(Consumer):
    """Faust's consumer, without its book of gaps.

    Faust keeps the gaps between offsets until it commits, which it never does here. Every transaction leaves a gap in
    `turns`. The tree of gaps would grow for ever, and it is searched for each record. After some
    minutes 1.20 (0.98 to 1.41) at 50 requests/s, 6 rounds, and it grows.
    """

    async def _add_gap(self, tp: Any, offset_from: int, offset_to: int) -> None:
        """Disabled."""


class FetchThrottle:
    """Fetches busy unhurried topics in rounds, so that their records do not complete the fetches of other topics.

    A fetch covers all partitions and returns as soon as one of them has records; the others then wait for the next
    fetch. Every answer ends with a record on `turns`, so these records would complete half of all fetches.
    First token p50 at 12 requests/s with `OFTEN` lowered, in that without rounds: 0.56 (0.26 to 1.53), 8 rounds.
    """

    def __init__(self, unhurried: frozenset[str]) -> None:
        self._unhurried = unhurried
        self._records = RecentRate()

    def fetched(self, consumer: Any, fetched: Mapping[Any, Sequence[Any]]) -> None:
        """If an unhurried topic had records, leave all unhurried topics out of the next fetches for a moment.

        A fetch that waits without them goes on waiting after that moment. This does not matter while other records
        arrive all the time. If they are rare, a record of `turns` would wait for the next request, and be processed at
        the same time as it.
        """
        count = sum(len(records) for partition, records in fetched.items() if partition.topic in self._unhurried)
        if count:
            self._records.add(count, time.monotonic())
            if self._records.value > OFTEN:
                consumer.pause(*self._assigned(consumer))
                # A partition assigned meanwhile is not paused; one that was lost needs no resume.
                asyncio.get_running_loop().call_later(ROUND_S, lambda: consumer.resume(*self._assigned(consumer)))

    def _assigned(self, consumer: Any) -> list[Any]:
        return [partition for partition in consumer.assignment() if partition.topic in self._unhurried]


class NoTables(TableManager):
    """Faust waits a second at its start for tables to be declared. Parley keeps its tables itself (tables/), so a
    worker is ready a second earlier.
    """

    async def on_start(self) -> None:
        await self._update_channels()
        await self.recovery.start()
