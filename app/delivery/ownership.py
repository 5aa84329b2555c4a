"""One ownership of a partition: from the fence that begins it to the failure or revocation that ends it.

It begins with the steps of taking_over.py, after a crash, after a rebalance, and after an outage of the broker. Work
that was in progress is dropped and recovered from the log:

- The former handover says where in `tokens` the oldest open answer begins; `recovered` is what stands from there on.
- `_resume_until` is where `requests` ended at that moment. The former owner may have begun any request before it, which
  is read again and takes its part of `recovered`, and none behind it.
- Until all of those are read, each commit hands on the former owner's place in `tokens`, not one of its own: whoever
  comes next must find the same answers. A request that stays parked from an earlier ownership counts as unread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from app.delivery.accepted import NEW, REPLAYED, Former, RequestKey
from app.delivery.clients import RETRIABLE_ERRORS, Clients, stop_client
from app.delivery.commits.changelog import changelogs, restore
from app.delivery.commits.commit import CommitQueue, GroupCommitter
from app.delivery.commits.handover import Handover, Offsets, decode_handover
from app.delivery.commits.pacer import CommitPacer
from app.delivery.commits.positions import Watermark
from app.delivery.inflight import InFlight
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.record import REQUESTS, Record, outgoing
from app.delivery.resume.pace import TokenProducer
from app.delivery.resume.recovery import recover
from app.delivery.resume.tokens import TokenLog
from app.delivery.sleepers import Sleepers
from app.kafka.broker_clock import BrokerClock
from app.settings import Settings
from app.wire.codec import read_request
from app.wire.error import WireError
from app.wire.event import EventType, TokenEvent
from tables import records
from tables.erasures import PartitionMarks
from tables.records import Ended, Table
from tables.store import PartitionStore

log = logging.getLogger(__name__)


OpenStore = Callable[..., PartitionStore]
"""See `PartitionStore.open`."""


class FencedError(Exception):
    """Another worker has taken over the partition."""


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """Which partition to take over, and the resources for it.

    `too_large` are requests of which the broker has refused an event for its size (resume/tokens.py). `models` returns
    the names of the models that this worker serves; each commit states them.
    """

    number: int
    settings: Settings
    clients: Clients
    token_producer: TokenProducer
    queue: CommitQueue
    pacer: CommitPacer = field(default_factory=CommitPacer)
    open_store: OpenStore = PartitionStore.open
    observer: Observer = UNOBSERVED
    too_large: set[RequestKey] = field(default_factory=set)
    models: Callable[[], tuple[str, ...]] = tuple

    def topic_partition(self, topic: str) -> TopicPartition:
        return TopicPartition(self.settings.topic(topic), self.number)

    @property
    def store_path(self) -> Path:
        return self.settings.data_dir / "tables" / f"{self.settings.group}-{self.number}"


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin: the handover, and of each topic the first unfinished offset and those finished ahead of it."""

    handover: Handover
    heads: Mapping[str, int]
    ahead: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class Ownership:
    """The resources and state of a partition's owner. Created by `take_over` (taking_over.py) only."""

    def __init__(
        self,
        context: PartitionContext,
        producer: AIOKafkaProducer,
        token_log: TokenLog,
        store: PartitionStore,
        start: Start,
        clock: BrokerClock,
    ) -> None:
        self.context = context
        self.clock = clock
        self.watermark = Watermark()
        self.token_log = token_log
        self.store = store
        self.offsets = {topic: Offsets.resume(head, start.ahead.get(topic, ())) for topic, head in start.heads.items()}
        self.inflight_requests: dict[RequestKey, InFlight] = {}
        self.refused: set[RequestKey] = set()
        self.marks = PartitionMarks(store)
        self.sleepers = Sleepers(store)
        self.recovered: dict[RequestKey, Former] = {}
        """What the log holds of requests that may be unfinished, until they are read again."""
        self.inherited_until = 0
        """Another owner may have begun what was parked before this offset: it was parked under an earlier ownership."""
        self.restored = 0
        self.to_continue = 0  # as the log was read: each request that is read again leaves `recovered`
        self._fencing = asyncio.Lock()
        self._producer = producer
        self._former = start.handover
        self._stated_models: tuple[str, ...] = ()
        self._lost_epoch = max(start.handover.lost_epoch, start.handover.epoch)
        self._first_epoch: int | None = None
        self._is_resumed = False
        self._resume_until: int | None = None  # None: not known yet, so any request may be one
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.committer = GroupCommitter(
            context.settings,
            context.number,
            producer=producer,
            store=store,
            offsets=self.offsets,
            queue=context.queue,
            pacer=context.pacer,
            handover=self._handover,
            observe=partial(context.observer.committed, context.number),
        )

    @property
    def epoch(self) -> int:
        return self.token_log.epoch

    async def run(self) -> None:
        """Commit until a commit fails, and raise its error."""
        committing = asyncio.ensure_future(self.committer.run())
        try:
            await asyncio.wait({committing, self._failed}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (self._failed, committing):
                if ended.done():
                    ended.result()
        finally:
            committing.cancel()
            with suppress(asyncio.CancelledError, *RETRIABLE_ERRORS):
                await committing

    def fail(self, error: BaseException) -> None:
        """The log may lack events or commits from now on: end this ownership."""
        if not self._failed.done():
            self._failed.set_exception(error)
            # The exception is not retrieved if the ownership ends at the same moment.
            self._failed.exception()

    def open(self, record: Record) -> bool:
        """Open the record; False if it was opened or finished before."""
        return self.offsets[record.topic].add(record.offset, self._tokens_from())

    def unpark(self, offset: int) -> None:
        """The request is read again. It counts as parked until it is open: another owner may have begun it meanwhile,
        while this worker was suspended.
        """
        self.offsets[REQUESTS].unpark(offset, self._tokens_from(offset))

    def _tokens_from(self, unparked: int | None = None) -> int:
        return self._inherited(self.epoch)[0] if self._awaits_former_requests(unparked) else self.token_log.position

    def _awaits_former_requests(self, unparked: int | None = None) -> bool:
        """Whether a request that a former owner has begun may still be read again. Once all before `_resume_until` are
        read, what is left of `recovered` belongs to none: its requests were committed.
        """
        if not self._is_resumed and self._resume_until is not None:
            parked = self.offsets[REQUESTS].first_parked()
            parked = parked if unparked is None else min(unparked, unparked if parked is None else parked)
            next_one = self.offsets[REQUESTS].next if parked is None or parked >= self.inherited_until else parked
            if next_one >= self._resume_until:
                self.recovered.clear()
            self._is_resumed = not self.recovered
        return not self._is_resumed

    def is_replayed(self, record: Record) -> bool:
        """Whether the record was in the log before this ownership began, so that a former owner may have begun it."""
        return self._resume_until is None or record.offset < self._resume_until

    def former_of(self, key: RequestKey, record: Record) -> Former:
        """What the log holds of this request, which is read again by now."""
        return self.recovered.pop(key, REPLAYED) if self.is_replayed(record) else NEW

    def has_begun(self, record: Record) -> bool:
        """Whether a former owner has begun the request of this record, or it is no request at all."""
        if not self.is_replayed(record):
            return False
        try:
            request = read_request(
                record.value, record.headers, key=record.key, partition=record.partition, offset=record.offset
            )
        except WireError:
            return True
        return (request.user_id, request.request_id) in self.recovered

    def known(self, key: RequestKey, at: int) -> bool:
        """Whether a request of the time `at` (Unix ms) is running, or has ended within `PARLEY_DEDUP_S` before that.

        The record's own time counts, so a record that is replayed late is judged as it was the first time.
        """
        if key in self.inflight_requests or key in self.refused:
            return True
        raw = self.store.get(Table.ENDED, records.key(*key))
        return raw is not None and at - records.decode_row(raw, Ended).at <= self.context.settings.dedup_s * 1000

    async def write_fence(self, mine: set[int]) -> None:
        """Begin a new epoch. Its number is added to `mine` before it can be committed."""
        fence = outgoing(self.context.settings, "tokens", None, TokenEvent(type=EventType.FENCE))
        async with self._fencing:
            await self.token_log.hold()
            sent_at = time.monotonic()
            receipt = await self.committer.fence(fence, mine, above=self._lost_epoch)
            self.clock.acknowledged(receipt, sent_at)
            self._first_epoch = receipt.offset if self._first_epoch is None else self._first_epoch
            self.token_log.open(receipt.offset)

    @property
    def needs_new_fence(self) -> bool:
        """Whether `tokens` was created anew and has since grown beyond the epochs that its readers may have seen
        before.

        Until a fence stands after that epoch, readers that did not notice drop all events as late.
        """
        return self.epoch <= self._lost_epoch < self.token_log.position

    @property
    def states_former_models(self) -> bool:
        """Whether this worker serves other models by now than the last commit has stated."""
        return self.context.models() != self._stated_models

    async def is_confirmed(self) -> bool:
        """Whether the broker has confirmed within the session timeout that this worker still owns the partition.

        Asks the broker if the last commit is older. A process that was suspended or disconnected cannot know otherwise.
        """
        fresh_until = self.committer.confirmed_at + self.context.settings.session_timeout_s
        if time.monotonic() < fresh_until:
            return True
        async with self._fencing:
            asked_at = time.monotonic()
            handover = await committed_handover(self.context)
            if handover.epoch != self.epoch:
                return False
            self.committer.confirmed_at = asked_at
            return True

    async def end(self) -> None:
        """Release everything. The broker aborts an open transaction when the next owner starts."""
        self.token_log.close()
        await stop_client(self._producer)
        self.store.close()

    def _handover(self, finished: Sequence[int], epoch: int) -> Handover:
        """What to commit once these requests are finished."""
        since, floor = self._inherited(epoch)
        if not self._awaits_former_requests():
            began = self.offsets[REQUESTS].tokens_from(finished)
            since = self.token_log.position if began is None else began
            floor = floor if self._first_epoch is None or since <= self._first_epoch else self._first_epoch
        self._stated_models = self.context.models()
        return Handover(
            head=self.offsets[REQUESTS].head(finished),
            epoch=epoch,
            tokens_offset=since,
            floor=floor,
            ahead=tuple(self.offsets[REQUESTS].ahead(finished)),
            lost_epoch=self._lost_epoch if epoch <= self._lost_epoch else -1,
            models=self._stated_models,
        )

    def _inherited(self, epoch: int) -> tuple[int, int]:
        """Where the former owner's open answers begin, and the floor there, for a fence at the offset `epoch`.

        The former handover names offsets before the end of the log. If the fence's offset is below one of them,
        `tokens` has lost its tail or was created anew.
        """
        floor = self._former.floor if epoch > self._former.epoch else -1
        return min(self._former.tokens_offset, epoch), floor

    def _log_lost_records(self) -> None:
        end = max(self._former.tokens_offset, self._former.epoch + 1)
        if self.epoch < end:
            log.error(
                "%s[%s] has lost records: it ended at offset %s or later; lost parts of answers are generated again",
                self.context.settings.topic("tokens"),
                self.context.number,
                end,
            )

    async def restore(self, reader: AIOKafkaConsumer) -> None:
        logs = changelogs(self.context.settings, self.context.number)
        self.restored = await restore(reader, self.store, logs)

    async def read_log(self, reader: AIOKafkaConsumer) -> None:
        """Read the events before the fence, and up to which request they may matter."""
        self._log_lost_records()
        self.sleepers.begin()
        requests = self.context.topic_partition("requests")
        start, floor = self._inherited(self.epoch)
        tokens = self.context.topic_partition("tokens")
        slept = partial(self.sleepers.answer_of, partition=self.context.number)
        recovered = await recover(reader, tokens, start=start, floor=floor, fence=self.epoch, slept=slept)
        is_open = {key: self.store.get(Table.ENDED, records.key(*key)) is None for key in recovered}
        self.recovered = {key: one for key, one in recovered.items() if is_open[key]}
        self.to_continue = sum(one.has_begun and one.end is None for one in self.recovered.values())
        self._resume_until = (await reader.end_offsets([requests]))[requests]


async def committed_handover(context: PartitionContext) -> Handover:
    """The handover that the newest owner has committed."""
    return handover_of((await context.clients.committed(context.number))[REQUESTS])


def handover_of(committed: OffsetAndMetadata) -> Handover:
    return decode_handover(committed.offset, committed.metadata or "")
