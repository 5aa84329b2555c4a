"""The partitions of this worker: assignment, flow control, and the orderly release."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from app.delivery.clients import RETRIABLE_ERRORS, Clients
from app.delivery.commits.commit import CommitQueue
from app.delivery.commits.pacer import CommitPacer
from app.delivery.commits.positions import LogEnd
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.ownership import OpenStore, PartitionContext
from app.delivery.partition import Partition, PartitionEvents, Receive, State
from app.delivery.record import REQUESTS, TURNS, Record, RecordSource
from app.delivery.resume.pace import TokenProducer
from app.delivery.standby import Standbys
from app.settings import Settings
from tables.store import PartitionStore

log = logging.getLogger(__name__)

_RESUME_AT_SHARE = 0.4
_CONFIRM_AGAIN_S = 0.5


class Partitions:
    def __init__(
        self,
        settings: Settings,
        host: PartitionEvents,
        source: RecordSource,
        *,
        clients: Clients | None = None,
        open_store: OpenStore = PartitionStore.open,
        observer: Observer = UNOBSERVED,
        models: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.all: dict[int, Partition] = {}
        self._settings = settings
        self._host = host
        self._source = source
        self._clients = clients or Clients(settings)
        self._open_store = open_store
        self._observer = observer
        self._models = models
        self._token_producer = TokenProducer(self._clients)
        self._pacer = CommitPacer()
        self._standbys = Standbys()
        self._log_end = LogEnd(self._clients)
        self._left = False
        self._hurried = False
        self._retaken: set[int] = set()

    async def revoked(self) -> None:
        """A rebalance has begun; `assigned` follows."""
        await asyncio.gather(*(partition.hold_take_over() for partition in self.all.values()))

    async def assigned(self, numbers: Iterable[int], standbys: Iterable[int] = ()) -> None:
        """Take over the partitions that the group assigns, and release the others.

        Records arrive while this runs, so every partition object exists before anything is awaited.
        """
        numbers = set() if self._left else set(numbers)
        standbys = () if self._left else standbys
        self._retaken.clear()
        gone = [self.all.pop(number) for number in set(self.all) - numbers]
        fenced = [number for number, partition in self.all.items() if partition.state is State.FENCED]
        gone += [self.all.pop(number) for number in fenced]
        kept = list(self.all.values())
        for partition in (*gone, *kept):
            self._flows_again(partition)  # the consumer forgets which partitions were paused
        new = [
            Partition(self._context(number), self._host, self._relieve) for number in sorted(numbers - set(self.all))
        ]
        self.all |= {partition.number: partition for partition in new}
        await self._standbys.keep(set(standbys) - numbers)
        await asyncio.gather(*(partition.close() for partition in gone))
        self._standbys.follow(map(self._context, set(standbys) - numbers))
        for partition in new:
            partition.allow_take_over()
        for partition in kept:
            partition.renew()

    def retake(self, partition: Partition) -> bool:
        """Take over a fenced partition again that no rebalance has revoked. Allowed once per assignment: a second time
        is no accident.
        """
        if partition.number in self._retaken:
            return False
        self._retaken.add(partition.number)
        partition.retake()
        return True

    def accept(self, record: Record, receive: Receive) -> None:
        """Let `receive` process the record, unless it is early, known or parked. One of a partition that was lost
        meanwhile belongs to another worker.
        """
        if (partition := self.all.get(record.partition)) is not None:
            partition.accept(record, receive)

    def owned(self, number: int) -> Partition | None:
        partition = self.all.get(number)
        return partition if partition is not None and partition.state is State.OWNED else None

    async def confirms(self, number: int) -> bool:
        """Whether Kafka confirms that a partition belongs to this worker; waits while Kafka is unreachable."""
        while (partition := self.owned(number)) is not None:
            try:
                return await partition.ownership.is_confirmed()
            except RETRIABLE_ERRORS:
                await asyncio.sleep(_CONFIRM_AGAIN_S)
        return False

    async def await_rebalance(self, partition: Partition) -> bool:
        """Wait for the rebalance that moves a fenced partition to its new owner, or else take it over again.

        Without a rebalance, a worker that the group had expelled came back for a moment, or two groups share one app
        id. False for the latter: the partition is fenced again after it was taken over.
        """
        await asyncio.sleep(2 * self._settings.session_timeout_s)
        still_ours = self.all.get(partition.number) is partition and partition.state is State.FENCED
        return not still_ours or self.retake(partition)

    def now(self) -> int:
        """The broker's clock as the owner of any partition knows it, Unix milliseconds."""
        owned = next((one for one in self.all.values() if one.state is State.OWNED), None)
        return time.time_ns() // 1_000_000 if owned is None else owned.ownership.clock.now()

    async def drain(self, grace_s: float, *, orderly: bool = True) -> None:
        """Let the answers that are being written end within the grace period, and leave the rest to the next owner.

        Requests that arrive meanwhile begin here and move on with the rest, so that their first tokens do not wait for
        the answers of others.
        """
        deadline = asyncio.get_running_loop().time() + grace_s
        begun = self._being_written()
        if begun and grace_s:
            log.info("leaving: waiting up to %g s for the %s answers that are being written", grace_s, len(begun))
        while (  # noqa: ASYNC110
            begun & self._being_written() and asyncio.get_running_loop().time() < deadline and not self._hurried
        ):
            await asyncio.sleep(0.02)
        if unfinished := self.unfinished:
            log.info("leaving %s requests to the next owners of their partitions, which continue them", unfinished)
        await self.stop(orderly=orderly)

    def hurry(self) -> None:
        """End the grace period of a drain that is under way."""
        self._hurried = True

    def _being_written(self) -> frozenset[asyncio.Task[None]]:
        return frozenset(
            task for number in self.all if (one := self.owned(number)) is not None for task in one.lanes.working
        )

    async def stop(self, *, orderly: bool = True) -> None:
        """Release all partitions, for good."""
        self._left = True
        partitions, self.all = list(self.all.values()), {}
        await self._standbys.keep(())
        await asyncio.gather(*(partition.close(orderly=orderly) for partition in partitions))
        await self._token_producer.stop()
        await self._log_end.stop()

    @property
    def unfinished(self) -> int:
        return sum(partition.records.count(REQUESTS) for partition in self.all.values())

    async def watermark(self, partition: Partition) -> int | None:
        """The time (Unix ms) up to which all requests of the partition are answered; None if it is not known.

        The partition must be owned.
        """
        ownership = partition.ownership
        now = ownership.clock.now()
        end = await self._log_end.of(partition.context.topic_partition(REQUESTS), ownership.offsets[REQUESTS].next)
        if end is not None:
            ownership.watermark.note(now, end)
        return ownership.watermark.advance(ownership.offsets[REQUESTS].head())

    def _context(self, number: int) -> PartitionContext:
        return PartitionContext(
            number,
            self._settings,
            self._clients,
            self._token_producer,
            CommitQueue(),
            self._pacer,
            self._open_store,
            self._observer,
            models=self._models,
        )

    def _flows_again(self, partition: Partition) -> None:
        for topic in partition.paused:
            self._observer.flow(partition.number, topic, paused=False)
        partition.paused.clear()

    def _relieve(self, partition: Partition) -> None:
        """Pause topics whose records pile up; each topic separately, so that a full one delays no other."""
        if self.all.get(partition.number) is not partition:
            return  # it is being closed; its next owner controls the flow
        for topic in (REQUESTS, TURNS):
            filled = partition.records.filled(topic)
            if filled >= 1:
                self._source.pause(topic, partition.number)  # each time: the end of a rebalance lets everything flow
                if topic not in partition.paused:
                    partition.paused.add(topic)
                    self._observer.flow(partition.number, topic, paused=True)
            elif topic not in partition.paused:
                continue
            elif filled <= _RESUME_AT_SHARE:
                partition.paused.discard(topic)
                self._source.resume(topic, partition.number)
                self._observer.flow(partition.number, topic, paused=False)
