"""A partition that is assigned to this worker: one ownership after another, and the records that arrive meanwhile.

    TAKING_OVER ──take_over──> OWNED ──a failure of the broker, a corrupt store, an unexpected error──> TAKING_OVER
         └──another worker has owned it since──> FENCED ──the group says it is ours──> TAKING_OVER

and from each state to CLOSED. A new ownership gets the open records of the one before, which are kept here, because
Faust delivers each record once. `take_over` runs only while `allow_take_over` holds: not during a rebalance, and not
while another part of this process has the partition (ownership.py).
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol

from app.delivery import dead_letters
from app.delivery.accepted import RequestKey
from app.delivery.clients import RETRIABLE_ERRORS
from app.delivery.commits.commit import Commit, LostError, RecordRefusedError
from app.delivery.escalation import ESCALATING, PARTITION_ERRORS, WORKER_ERRORS
from app.delivery.inflight import InFlight
from app.delivery.lanes import Lanes
from app.delivery.open_records import Capacity, OpenRecords
from app.delivery.ownership import FencedError, Ownership, PartitionContext
from app.delivery.parked_reader import ParkedReader
from app.delivery.record import REQUESTS, Record
from app.delivery.resume.quarantine import write_attempt
from app.delivery.taking_over import take_over
from models.interface.unexpected import type_and_line
from tables.store_errors import CorruptStoreError, StoreUnusableError

log = logging.getLogger(__name__)

_RETRY_S = (0.05, 0.2, 1.0, 2.0, 5.0)
# An ownership that ends sooner counts as one more failure in a row.
_STEADY_S = 10.0
# A store that is corrupt again within this time has a disk that does not keep what is written.
_CORRUPT_AGAIN_S = 600.0
_RELEASE_S = 1.0
_HALT_AGAIN_S = 2.0
_HELD = 0.125
"""The share of a partition's slots that commits may hold while requests wait for one."""
_NOT_OF_RECORDS = (*ESCALATING, *RETRIABLE_ERRORS)
# Unexpected errors of one partition in a row, with back-off between them, until the worker is believed to be broken.
_MOST_UNEXPECTED = 4


class State(enum.Enum):
    TAKING_OVER = "taking over"
    OWNED = "owned"
    FENCED = "fenced"
    CLOSED = "closed"


_NEXT = {
    State.TAKING_OVER: {State.TAKING_OVER, State.OWNED, State.FENCED, State.CLOSED},
    State.OWNED: {State.TAKING_OVER, State.CLOSED},
    State.FENCED: {State.TAKING_OVER, State.CLOSED},
    State.CLOSED: {State.CLOSED},
}


class PartitionEvents(Protocol):
    """What a partition reports to its worker."""

    def receive(self, partition: Partition, record: Record) -> None:
        """Called in offset order for each new record that does not come from its agent at once: early, replayed or
        parked ones. Must not block.
        """

    def parks(self, partition: Partition, record: Record) -> bool:
        """Whether a request beyond its user's share may be parked; called before it is."""

    def owned(self, partition: Partition) -> None:
        """An ownership has begun; open records are processed next."""

    def released(self, partition: Partition) -> None:
        """The ownership has ended; its open records are processed again, here or by the next owner."""

    def fenced(self, partition: Partition, error: FencedError) -> None:
        """Another worker owns the partition."""

    def broken(self, error: BaseException) -> None:
        """The worker must stop (escalation.py)."""


def _position_of(commit: Commit) -> str:
    record = commit.record
    return "a commit without a record" if record is None else f"{record.topic}[{record.partition}]@{record.offset}"


Receive = Callable[["Partition", Record], None]


class Partition:
    """Accepts records from the start and takes ownership after `allow_take_over`; `close` it when it is revoked."""

    def __init__(self, context: PartitionContext, host: PartitionEvents, on_load: Callable[[Partition], None]) -> None:
        self.context = context
        self.number = context.number
        self.state = State.TAKING_OVER
        self.paused: set[str] = set()
        self._host = host
        self._on_load = on_load
        self._ownership: Ownership | None = None
        self._lanes: Lanes[InFlight] | None = None
        self._mine: set[int] = set()
        self.records = OpenRecords(Capacity.of(context.settings))
        self._received_until: dict[str, int] = {}
        """By topic, the offset behind the newest record that came under the ownership before."""
        self._corrupt_at = -math.inf
        self._withdrawn: list[InFlight] = []
        self.begun: dict[RequestKey, int] = {}
        """The newest attempt of each request that this process has begun and survived (resume/quarantine.py, 3)."""
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order of their start
        self._letting_go = asyncio.Lock()
        self._may_take_over = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"partition-{context.number}")

    @property
    def ownership(self) -> Ownership:
        """The current ownership; valid only in the state OWNED, in which all agents run."""
        assert self._ownership is not None
        return self._ownership

    @property
    def lanes(self) -> Lanes[InFlight]:
        assert self._lanes is not None
        return self._lanes

    def accept(self, record: Record, receive: Receive) -> None:
        """Let `receive` process the record now if it is new, and the partition is owned and has room for it."""
        is_due = False
        try:
            if self.state is not State.OWNED:
                self.records.add_early(record)
            elif self.ownership.open(record):
                exceeds = self.records.exceeds(record) and not self.ownership.has_begun(record)
                if exceeds and self._host.parks(self, record):
                    self.ownership.offsets[REQUESTS].park(record.offset)
                    self.records.park(record)
                else:
                    self.records.hold(record)
                    is_due = True
        except CorruptStoreError as error:
            self.ownership.fail(error)  # the record is open, and handled again
        if is_due:
            self._contain(record, receive)
        self._on_load(self)

    def unpark(self, record: Record) -> None:
        """Process a record that was parked."""
        self.ownership.unpark(record.offset)
        self.records.hold(record)
        self._contain(record, self._host.receive)
        self._on_load(self)

    def _drop(self, record: Record) -> None:
        """The record was parked, and leads to nothing."""
        self.ownership.unpark(record.offset)
        self.spawn(self.commit(Commit(record)))

    def _contain(self, record: Record, receive: Receive) -> None:
        """Let `receive` process the record. What is unexpected about it makes it a dead letter."""
        try:
            receive(self, record)
        except CorruptStoreError as error:
            self.ownership.fail(error)  # the record is open, and handled again
        except ESCALATING:
            raise
        except Exception as error:  # noqa: BLE001 - of this record
            self.spawn(self.commit(dead_letters.commit_of_unexpected(record, error, self.context.settings)))

    @asynccontextmanager
    async def without_slot(self, inflight: InFlight) -> AsyncIterator[None]:
        """While a running request waits for tools: it occupies no slot, and keeps no further records in Kafka."""
        self.records.lend(inflight.accepted.record)
        self._on_load(self)
        try:
            async with self.lanes.without_slot():
                yield
        finally:
            self.records.reclaim(inflight.accepted.record)

    def allow_take_over(self) -> None:
        """No other part of this process holds anything of the partition."""
        self._may_take_over.set()

    async def commit(self, commit: Commit, *, urgent: bool = False) -> None:
        """Commit what a record leaves behind. Raises `LostError` if the ownership ends first."""
        if commit.record is not None and commit.record.offset < 0:  # of an answer that ends from its rows
            commit = dataclasses.replace(commit, record=None)
        try:
            committed = self.context.queue.put(commit)
            if urgent:
                self.context.queue.hurry()
            else:
                self.hurry_for_slots()
            await committed
        except RecordRefusedError as error:
            log.error("partition %s: %s cannot be committed as it is: %s", self.number, _position_of(commit), error)
            await self._commit_without_output(commit, str(error))
        if commit.record is not None:
            self.records.remove(commit.record)
            self._on_load(self)

    def hurry_for_slots(self) -> None:
        """A request keeps its slot until it is committed: where others wait for one, let no commits wait for more."""
        held = len(self.context.queue.waiting)
        if held >= _HELD * self.context.settings.max_in_flight and self._lanes is not None and self._lanes.are_short:
            self.context.queue.hurry()

    async def _commit_without_output(self, commit: Commit, reason: str) -> None:
        try:
            await self.context.queue.put(dead_letters.commit_without_output(commit, reason, self.context.settings))
        except LostError:
            raise
        except Exception as error:  # noqa: BLE001 - of this record; it is not committed as it is, and blocks nothing
            if commit.instead:
                await self._commit_without_output(dataclasses.replace(commit, instead=()), reason)
                return
            where, why = _position_of(commit), type_and_line(error)
            log.critical("partition %s: %s leaves no record behind: %s", self.number, where, why)
            await self.context.queue.put(Commit(commit.record))

    def spawn(self, work: Coroutine[Any, Any, None], about: Record | None = None) -> asyncio.Task[None]:
        """Run a task that is cancelled when the ownership ends. If it fails, the record that it is `about` becomes a
        dead letter; one about no record starts the partition over.
        """
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(partial(self._worked, about))
        return task

    def renew(self) -> None:
        """The partition was assigned to this worker again: begin a new epoch and continue the answers.

        Any other owner has lost the partition with this assignment, so fencing it is allowed.
        """
        self._mine.clear()
        self._may_take_over.set()
        if self.state is State.OWNED:
            self.spawn(self.ownership.write_fence(self._mine))
            self._count_attempts_again()

    def fence_again_if_needed(self) -> None:
        """Write a new fence if `tokens` was created anew and its readers drop all events as late."""
        if self.state is State.OWNED and self.ownership.needs_new_fence:
            self.spawn(self.ownership.write_fence(self._mine))

    async def hold_take_over(self) -> None:
        """A rebalance has begun: the ownership goes on, but nothing is taken over before the assignment.

        A partition that is lost meanwhile may be lost to its new owner, which must not be fenced by a worker that does
        not know the new assignment yet.
        """
        self._may_take_over.clear()
        if self.state is State.OWNED:
            await self._withdraw_attempts()
        if self.state is State.TAKING_OVER:
            await self._halt()
        if self.state is State.TAKING_OVER:  # and not closed meanwhile: a worker may leave at any moment
            self._task = asyncio.create_task(self._run(), name=f"partition-{self.number}")

    def retake(self) -> None:
        """Take over a fenced partition again: according to the group it is ours, so the other worker was wrong."""
        self._mine.clear()
        self._become(State.TAKING_OVER)
        self.context.queue.closed = False
        self._task = asyncio.create_task(self._run(), name=f"partition-{self.number}")

    async def close(self, *, orderly: bool = True) -> None:
        """Release the partition as it is; the next owner continues what is unfinished.

        Not `orderly` means that the worker failed, possibly because of one of its requests.
        """
        if self.state is State.OWNED and orderly:
            await self._withdraw_attempts()
        self._become(State.CLOSED)
        await self._halt()
        self.context.queue.close()

    async def _halt(self) -> None:
        while not self._task.done():
            self._task.cancel()  # libraries have swallowed a cancellation before
            await asyncio.wait((self._task,), timeout=_HALT_AGAIN_S)
        await self._let_go()  # the cancellation may have interrupted it

    async def _withdraw_attempts(self) -> None:
        """See resume/quarantine.py, 3. If the broker cannot be reached, the attempts stay counted."""
        with suppress(LostError, *RETRIABLE_ERRORS):
            async with asyncio.timeout(_RELEASE_S):
                for inflight in list(self.ownership.inflight_requests.values()):
                    if inflight.attempts.is_recorded and inflight not in self._withdrawn:
                        self._withdrawn.append(inflight)
                        await write_attempt(self.ownership.token_log, inflight, inflight.attempts.lost)

    def _count_attempts_again(self) -> None:
        withdrawn, self._withdrawn = self._withdrawn, []
        for inflight in withdrawn:
            count = inflight.attempts
            if count.is_recorded and self.ownership.inflight_requests.get(inflight.key) is inflight:
                self.spawn(write_attempt(self.ownership.token_log, inflight, count.lost + 1))

    async def _run(self) -> None:
        failures, unexpected, clock = 0, 0, asyncio.get_running_loop().time
        while True:
            try:
                await self._may_take_over.wait()
                self._ownership = await take_over(self.context, self._mine)
                self._lanes = Lanes(self.context.settings.max_in_flight, self._on_error)
                self._become(State.OWNED)
                self._host.owned(self)
                self._reopen_records()
                self.spawn(ParkedReader(self.context, self.records, self.unpark, self._drop).run())
                began = clock()
                try:
                    await self._ownership.run()
                finally:
                    if clock() - began > _STEADY_S:
                        failures = unexpected = 0
            except asyncio.CancelledError:
                # A take-over may swallow one and succeed: what the next one ends is not owned any more.
                if self.state is State.OWNED:
                    self._become(State.TAKING_OVER)
                raise
            except FencedError as error:
                self._become(State.FENCED)
                self.context.queue.close()
                self._host.fenced(self, error)
                return
            except RETRIABLE_ERRORS as error:
                self._become(State.TAKING_OVER)
                log.warning("partition %s: %r; taking it over again", self.number, error)
            except CorruptStoreError as error:
                self._become(State.TAKING_OVER)
                if clock() - self._corrupt_at < _CORRUPT_AGAIN_S:
                    self._host.broken(StoreUnusableError(f"{error}, but soon after the last time: check the disk"))
                    return
                self._corrupt_at = clock()
                log.warning("partition %s: %s", self.number, error)
            except Exception as error:
                self._become(State.TAKING_OVER)
                unexpected += 1
                if isinstance(error, WORKER_ERRORS) or unexpected > _MOST_UNEXPECTED:
                    self._host.broken(error)
                    return
                log.exception("partition %s: an unexpected error; taking it over again", self.number)
            finally:
                await self._let_go()
            await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
            failures += 1

    def _reopen_records(self) -> None:
        former, self.records = self.records, OpenRecords(Capacity.of(self.context.settings))
        offsets = self.ownership.offsets[REQUESTS]
        offsets.first_parked = self.records.first_parked
        self.ownership.inherited_until = self.records.inherit_parked(former, offsets.next, offsets.finished_ahead)
        for record in former.in_memory():
            self.accept(record, self._host.receive)
        self._skip_what_has_come()

    def _skip_what_has_come(self) -> None:
        """What came under the ownership before and is not open any more is committed, or a hole in the offsets: it does
        not come again. Commit that, or the group would lag behind an idle partition for ever.
        """
        offsets = self.ownership.offsets
        skipped = [topic for topic, offset in self._received_until.items() if offsets[topic].skip_to(offset)]
        if skipped:
            self.spawn(self.commit(Commit(None)))

    async def _let_go(self) -> None:
        """A rebalance and the end of the worker may both come to this: the second waits for the first."""
        async with self._letting_go:
            if self._ownership is None:
                return
            self._received_until = {topic: one.next for topic, one in self._ownership.offsets.items()}
            if self._lanes is not None:
                await self._lanes.cancel()
            for inflight in self._ownership.inflight_requests.values():
                inflight.abandon()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.context.queue.drop()
            self._host.released(self)
            self._withdrawn = []
            await self._ownership.end()
            self._ownership = self._lanes = None

    def release(self, inflight: InFlight) -> None:
        """The request is committed."""
        self.ownership.inflight_requests.pop(inflight.key, None)
        self.begun.pop(inflight.key, None)
        self.context.too_large.discard(inflight.key)
        inflight.abandon()
        self._on_load(self)

    def _worked(self, about: Record | None, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        is_open = about is not None and self.state is State.OWNED and self.records.holds(about)
        if about is None or not is_open or not isinstance(error, Exception) or isinstance(error, _NOT_OF_RECORDS):
            self._on_error(error)
        else:
            self.spawn(self.commit(dead_letters.commit_of_unexpected(about, error, self.context.settings)))

    def _on_error(self, error: BaseException) -> None:
        """An error of a task that is not about one request: those are contained by the agents."""
        if isinstance(error, WORKER_ERRORS):
            self._host.broken(error)
        elif not isinstance(error, PARTITION_ERRORS):
            self.ownership.fail(error)

    def _become(self, state: State) -> None:
        if state not in _NEXT[self.state]:
            raise AssertionError(f"partition {self.number} cannot go from {self.state} to {state}")
        self.state = state
