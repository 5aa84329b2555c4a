"""Everything that uses private names of Faust and aiokafka, checked at start.

Both libraries are pinned exactly. `check` compares the names used here with what is installed, so that another version
fails at start, with the missing name, and not in the middle of a rebalance.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import time
import types
from collections import deque
from collections.abc import Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any

import aiokafka
import faust
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CoordinatorNotAvailableError
from aiokafka.producer import sender
from faust.assignor.client_assignment import ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.services import Service, WaitResults

from app.log_limit import limit_logs

# aiokafka polls the broker every 20 ms until the previous transaction is settled, and each commit waits for that. 1 ms
# is enough.
_TRANSACTION_POLL_S = 0.001

# How long the fetches of an unhurried topic pause, and from how many records a second on.
ROUND_S = 0.1
OFTEN = 30

_NEEDED: Mapping[Any, tuple[str, ...]] = {
    sender: ("BACKOFF_OVERRIDE",),
    driver.Consumer: ("_new_consumer_thread", "_add_gap", "_drain_messages", "wait_first"),
    driver.AIOKafkaConsumerThread: ("_create_worker_consumer", "_fetch_records", "__post_init__", "verify_event_path"),
    faust.App: ("_new_transport", "FlowControlQueue"),
    PartitionAssignor: ("_url", "_decompress", "on_assignment"),
    GroupCoordinator: ("_coordination_routine",),
}
_NEEDED_OF_CONSUMER = ("_isolation_level", "_partition_assignment_strategy")


class InternalsError(Exception):
    """An installed library is not the version that this module was written for."""


def check() -> None:
    """Raise `InternalsError` if a name is missing."""
    missing = [
        f"{owner.__name__}.{name}" for owner, names in _NEEDED.items() for name in names if not hasattr(owner, name)
    ]
    source = aiokafka.AIOKafkaConsumer.__init__.__code__.co_names
    missing += [f"AIOKafkaConsumer.{name}" for name in _NEEDED_OF_CONSUMER if name not in source]
    if missing:
        raise InternalsError(
            f"faust-streaming {faust.__version__} and aiokafka {aiokafka.__version__} lack {', '.join(missing)}; "
            "install the versions that pyproject.toml pins"
        )


def tune() -> None:
    sender.BACKOFF_OVERRIDE = _TRANSACTION_POLL_S
    logging.getLogger(GroupCoordinator.__module__).addFilter(_FirstStart())  # before the rate limit
    limit_logs("aiokafka")
    # It prints a table for every assignment of every consumer.
    logging.getLogger("aiokafka.consumer.subscription_state").setLevel(logging.WARNING)


class _FirstStart(logging.Filter):
    """Explain aiokafka's error 15: at a first start the broker has not created its offsets topic yet."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and any(isinstance(arg, CoordinatorNotAvailableError) for arg in record.args):
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.msg = (
                "the broker has no group coordinator yet; retrying "
                "(on a first start the broker is still creating its offsets topic)"
            )
            record.args = ()
        return True


class Assignor(PartitionAssignor):
    """Faust's assignor, adapted to static members.

    A worker that rejoins under its former name receives its previously encoded assignment. Faust asserts that it
    contains the current address of its web server. A worker whose host or port has changed would fail that assertion
    for ever and keep its partitions from all others.
    """

    _told: str | None = None

    @property
    def _url(self) -> Any:
        return self._told or self.app.conf.canonical_url

    def on_assignment(self, assignment: Any) -> None:
        self._told = ClientMetadata.loads(self._decompress(assignment.user_data)).url
        try:
            super().on_assignment(assignment)
        finally:
            self._told = None


class FetchThrottle:
    """Fetches busy unhurried topics in rounds, so that their records do not complete the fetches of other topics.

    A fetch covers all partitions and returns as soon as one of them has records; the others then wait for the next
    fetch. Every answer ends with a record on `turns`, so these records would complete half of all fetches.
    """

    def __init__(self, unhurried: frozenset[str]) -> None:
        self._unhurried = unhurried
        self._lately = 0.0  # records of roughly the last second
        self._counted_at = 0.0

    def fetched(self, consumer: Any, fetched: Mapping[Any, Sequence[Any]]) -> None:
        """If an unhurried topic had records, leave all unhurried topics out of the next fetches for a moment.

        A fetch that waits without them goes on waiting after that moment. This does not matter while other records
        arrive all the time. If they are rare, a record of `turns` would wait for the next request, and be processed at
        the same time as it.
        """
        count = sum(len(records) for partition, records in fetched.items() if partition.topic in self._unhurried)
        if count:
            now = time.monotonic()
            self._lately = self._lately * math.exp(self._counted_at - now) + count
            self._counted_at = now
            if self._lately > OFTEN:
                consumer.pause(*self._assigned(consumer))
                # A partition assigned meanwhile is not paused; one that was lost needs no resume.
                asyncio.get_running_loop().call_later(ROUND_S, lambda: consumer.resume(*self._assigned(consumer)))

    def _assigned(self, consumer: Any) -> list[Any]:
        return [partition for partition in consumer.assignment() if partition.topic in self._unhurried]


class HandedOut:
    """Which record of a partition was fetched before which.

    Faust delivers the records of a partition in the order of their fetches, and drops some of them during a rebalance.
    Everything fetched before a delivered record was therefore either delivered or dropped, and can be forgotten.
    Records are fetched in the consumer's thread and delivered in the application's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[Any, int] = {}
        self._fetched: dict[Any, deque[tuple[int, int]]] = {}

    def fetched(self, partition: Any, records: Sequence[Any]) -> None:
        with self._lock:
            waiting = self._fetched.setdefault(partition, deque())
            for record in records:
                last = self._newest.get(partition, -1)
                self._newest[partition] = record.offset
                # After a seek backwards the previous record is not known.
                waiting.append((record.offset, last if last < record.offset else -1))

    def before(self, partition: Any, offset: int) -> int:
        """Offset of the record that was fetched before the one at that offset, -1 if that is not known."""
        with self._lock:
            waiting = self._fetched.get(partition, deque())
            place = next((place for place, (one, _) in enumerate(waiting) if one == offset), None)
            if place is None:
                return -1
            for _ in range(place):
                waiting.popleft()
            return waiting.popleft()[1]

    def __len__(self) -> int:
        return sum(map(len, self._fetched.values()))


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    """Remembers the order of fetched records, so that a record that was never delivered is noticed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rounds = FetchThrottle(self.app.unhurried)
        self.handed = HandedOut()

    async def _fetch_records(self, consumer: Any, *args: Any, **kwargs: Any) -> Any:
        fetched = await super()._fetch_records(consumer, *args, **kwargs)
        self.rounds.fetched(consumer, fetched)
        for partition, records in fetched.items():
            self.handed.fetched(partition, records)
        return fetched

    def verify_event_path(self, now: float, tp: Any) -> None:
        """Disabled: Faust counts from the consumer's start and would call newly assigned partitions stuck.

        `/healthz` and `/readyz` watch the same conditions (app/telemetry/health.py).
        """

    def _create_worker_consumer(self, transport: Any) -> Any:
        """A read_committed consumer whose topics are assigned together.

        `turns` is written in transactions. A user has the same partition in `requests`, `controls` and `turns`, which
        therefore need one owner. Faust's assignor guarantees that, but Faust uses it only for apps with tables of its
        own.
        """
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # noqa: SLF001
        consumer._partition_assignment_strategy = [self.app.assignor]  # noqa: SLF001
        return consumer


class QuickWait(Service):
    """A service whose waits return at once if nothing has to be waited for."""

    async def wait_first(self, *waited: Any, timeout: Any = None) -> Any:  # noqa: ASYNC109 - Faust's
        """Faust delivers each record through this method, together with three other waits, as four tasks and several
        iterations of the loop.

        A record hardly ever has to wait. Skipping the tasks saves more time than the record itself takes.
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


class _Consumer(QuickWait, driver.Consumer):
    def leave_group_when_stopped(self) -> None:
        """Leave the group at once; a static member that only disconnects keeps its partitions until its session times
        out.
        """
        consumer = self._thread._consumer  # noqa: SLF001
        if consumer is not None and consumer._coordinator is not None:  # noqa: SLF001 - a start may not get that far
            consumer._coordinator._group_instance_id = None  # noqa: SLF001

    def coordination_ended(self) -> BaseException | None:
        """Why this member no longer takes part in the group; aiokafka only logs it."""
        consumer = self._thread._consumer  # noqa: SLF001
        task = None if consumer is None else getattr(consumer._coordinator, "_coordination_task", None)  # noqa: SLF001
        return None if task is None or not task.done() or task.cancelled() else task.exception()

    def handed_before(self, message: Any) -> int:
        """Offset of the record that was delivered before this one, -1 if that is not known."""
        return self._thread.handed.before(TP(message.topic, message.partition), message.offset)

    async def _add_gap(self, tp: Any, offset_from: int, offset_to: int) -> None:
        """Disabled: Faust keeps the gaps between offsets until it commits, which it never does here.

        Every transaction leaves a gap in `turns`. The tree of gaps would grow for ever, and it is searched for each
        record.
        """

    def _new_consumer_thread(self) -> Any:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


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


class App(faust.App):
    """Faust's application with the consumer above. Records of `unhurried` topics may be delivered a moment later."""

    unhurried: frozenset[str] = frozenset()

    def _new_transport(self) -> Any:
        transport = super()._new_transport()
        transport.Consumer = _Consumer
        return transport

    def FlowControlQueue(self, maxsize: int | None = None, *, clear_on_resume: bool = False) -> Any:  # noqa: ARG002, N802
        """Never cleared on resume: its records were delivered after the seek and are not delivered again."""
        return super().FlowControlQueue(maxsize=maxsize, clear_on_resume=False)
