"""Faust's consumer: read_committed, one assignment for all topics, known seeks, and a goodbye to the group."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from app.faust.arrivals import Arrivals
from app.faust.open_transactions import OpenTransactions
from app.faust.tuning import FetchThrottle, NoGaps, NoTables, QuickDelivery, SameLoop
from app.kafka.fetch_session import use_fetch_sessions
from app.kafka.reading import cause_of

_LEAVE_S = 2.0


class _ConsumerInLoop(SameLoop, driver.AIOKafkaConsumerThread):
    """Tells `App.arrivals` what is fetched, and to which offsets the consumer goes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.throttle = FetchThrottle(self.app.unhurried)
        self.transactions = OpenTransactions()

    async def _fetch_records(self, consumer: Any, *args: Any, **kwargs: Any) -> Any:
        fetched = await super()._fetch_records(consumer, *args, **kwargs)
        self.throttle.fetched(consumer, fetched)
        self.transactions.fetched(consumer, time.monotonic())
        for partition, records in fetched.items():
            self.app.arrivals.fetched(partition, [record.offset for record in records])
        return fetched

    async def seek_to_committed(self) -> dict[TP, int]:
        """Go to the committed offset of each partition that is still assigned, or else to its first record.

        aiokafka's own method asks for each partition by itself. It leaves those without a commit, and those committed
        at 0, where they are; what Faust has dropped of them would not come again.
        """
        consumer, offsets = self._ensure_consumer(), dict[Any, int]()
        while unknown := consumer.assignment() - offsets.keys():
            committed = await consumer._coordinator.fetch_committed_offsets(unknown)  # noqa: SLF001
            offsets |= {at: known.offset for at, known in committed.items() if known.offset >= 0}
            if uncommitted := unknown - offsets.keys():
                offsets |= await consumer.beginning_offsets(uncommitted)
        assigned = consumer.assignment()
        for at in assigned:
            consumer.seek(at, offsets[at])
            self.app.arrivals.seek(at)
        consumer.pause(*(at for at in assigned if at.topic in self.app.unread))
        return {TP(*at): offsets[at] for at in assigned}

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
        use_fetch_sessions(consumer)
        return consumer


class _Consumer(QuickDelivery, NoGaps, driver.Consumer):
    def _to_message(self, tp: TP, record: Any) -> Any:
        message = super()._to_message(tp, record)
        message.unreadable = cause_of(record)
        return message

    async def leave_group(self) -> bool:
        """Leave the group now; a static member that only disconnects keeps its partitions until its session times out.

        False if the broker does not confirm it soon; the goodbye goes on while the consumer stops.
        """
        consumer = self._thread._consumer  # noqa: SLF001
        if consumer is None or (coordinator := consumer._coordinator) is None:  # noqa: SLF001 - a start may not get that far
            return True
        coordinator._group_instance_id = None  # noqa: SLF001
        self._goodbye = asyncio.ensure_future(coordinator.close())
        await asyncio.wait({self._goodbye}, timeout=_LEAVE_S)
        if not self._goodbye.done() or self._goodbye.exception() is not None:
            return False
        # aiokafka only logs a goodbye that was not answered, and forgets the coordinator.
        return coordinator.coordinator_id is not None

    def joined_as(self) -> str:
        """What the group calls this life of the member."""
        return str(self._thread._consumer._coordinator.member_id)  # noqa: SLF001

    def coordination_ended(self) -> BaseException | None:
        """Why this member no longer takes part in the group; aiokafka only logs it."""
        consumer = self._thread._consumer  # noqa: SLF001
        task = None if consumer is None else getattr(consumer._coordinator, "_coordination_task", None)  # noqa: SLF001
        return None if task is None or not task.done() or task.cancelled() else task.exception()

    def _new_consumer_thread(self) -> Any:
        return _ConsumerInLoop(self, loop=self.loop, thread_loop=self.loop, beacon=self.beacon)


class App(faust.App):
    """Faust's application with the consumer above. Records of `unhurried` topics may be delivered a moment later.
    `unread` topics are assigned with the others, as in workers that read them, and nothing of them is fetched.
    """

    unhurried: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()
    arrivals: Arrivals

    def on_init_dependencies(self) -> Any:
        """With a sensor that does nothing in place of Faust's monitor, whose figures nothing reads. With none at all,
        Faust warns of each rebalance.
        """
        services = super().on_init_dependencies()
        self.sensors.remove(self.monitor)
        self.sensors.add(faust.Sensor())
        return services

    def _new_transport(self) -> Any:
        transport = super()._new_transport()
        transport.Consumer = _Consumer
        return transport

    def FlowControlQueue(self, maxsize: int | None = None, *, clear_on_resume: bool = False) -> Any:  # noqa: ARG002, N802
        """Never cleared on resume: its records were delivered after the seek and are not delivered again."""
        return super().FlowControlQueue(maxsize=maxsize, clear_on_resume=False)


SERVICES = (_Consumer, _ConsumerInLoop, NoTables)
