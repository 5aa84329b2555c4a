"""A worker process in the simulation: the real parts of a worker on an event loop, a link and a disk of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from aiokafka import TopicPartition

from app.delivery.commits.pacer import CommitPacer
from app.delivery.partition import Partition, State
from app.delivery.partitions import Partitions
from app.delivery.resume.pace import TokenPace
from app.features.guard.guard import Guard
from app.policy.file import DEFAULT_MODEL, NO_POLICY, Policy
from app.search.milvus.connection import Milvus
from app.search.milvus.store import MilvusStore
from app.settings import Settings
from app.wire.ids import seed_for
from app.worker import Loaded, Worker
from models.embedder import Embedder
from models.interface.generation import Delta, Failure, Job, Stream, StreamEvent, TokenLogprob
from models.served.paced import NAME, PacedEngine, PacedStream, paced
from models.served.registry import ModelRegistry, ServedModel
from tables.store import PartitionStore
from tests.faults.plan_verdict import version_of
from tests.simulation.analyzer import FickleAnalyzer
from tests.simulation.broker import Broker
from tests.simulation.clients import SimClients
from tests.simulation.group import Feeds, Group
from tests.simulation.judges import FickleJudges
from tests.simulation.memory_store import Disk, MemoryStore
from tests.simulation.milvus import MilvusServer, SameVector, SimMilvus
from tests.simulation.sabotage import HostileStream, check_submit, sabotaged
from tests.simulation.world import SteppedLoop

Fails = Callable[[str, Job], int | None]
"""After how many tokens the model of a version fails in a job; None if it does not."""


_GOODBYE_S = 10.0


def _scored(job: Job, event: StreamEvent) -> StreamEvent:
    """With log probabilities where they are asked for: candidates of `best_of` are ranked by them."""
    if job.sampling.logprobs is None or not isinstance(event, Delta):
        return event
    return replace(event, logprobs=tuple(TokenLogprob(token, -(token % 97) / 97) for token in event.tokens))


class ScoredStream(PacedStream):
    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        async with aclosing(super().__aiter__()) as events:  # type: ignore[type-var]
            async for event in events:
                yield _scored(self._job, event)


class FailingStream(PacedStream):
    """The stream of a job that fails before the token `at`."""

    def __init__(self, job: Job, pause_s: float, version: str, at: int) -> None:
        super().__init__(job, pause_s, version)
        self._at = at

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        async for event in super().__aiter__():
            if isinstance(event, Delta) and event.index + len(event.tokens) > self._at:
                yield Failure(event.index, "engine_error", "the model has failed")
                return
            yield _scored(self._job, event)


class DeadlyEngine(PacedEngine):
    """Reports the jobs that it receives, and fails in those for which `fails` gives a position."""

    def __init__(
        self, tokens_per_s: float, version: str, submitted: Callable[[Sequence[Job]], None], fails: Fails
    ) -> None:
        super().__init__(tokens_per_s, version)
        self._submitted = submitted
        self._fails = fails

    def submit(self, jobs: Sequence[Job]) -> list[Stream]:
        check_submit(jobs)
        self._submitted(jobs)
        return [self._stream(job) for job in jobs]

    def _stream(self, job: Job) -> Stream:
        sabotage = sabotaged(job.id)
        if sabotage is not None and sabotage[0] == "model":
            return HostileStream(job, self._pause_s, self.model_version, sabotage[1])
        at, version = self._fails(self.model_version, job), version_of(self.model_version, _candidate_of(job))
        if at is not None:
            return FailingStream(job, self._pause_s, version, at)
        kind = PacedStream if job.sampling.logprobs is None else ScoredStream
        stream = kind(job, self._pause_s, version)
        self._streams.add(stream)
        return stream


def _candidate_of(job: Job) -> int:
    """Which candidate of `best_of` it is, by its noise."""
    request_id = job.id.rpartition("/")[2].partition("#")[0]
    number = (job.sampling.seed ^ seed_for(request_id)) >> 32
    return number if number < 10 else 0


class Process:
    """Starts at once. Implements `tests.simulation.clients.Link`."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        broker: Broker,
        group: Group,
        disk: Disk,
        *,
        milvus: MilvusServer | None = None,
        crowded: bool = False,
        policy: Policy = NO_POLICY,
        small: bool = True,
        fails: Fails = lambda _version, _job: None,
        reads_late: bool = False,
        skew: float = 0.0,
        is_deadly: Callable[[Process, Job], bool] = lambda _process, _job: False,
        on_death: Callable[[str], None] = lambda _name: None,
    ) -> None:
        self.name = name
        self._milvus = milvus
        self._crowded = crowded
        self._policy = policy
        self._small = small
        self._fails = fails
        self._reads_late = reads_late
        self._is_deadly = is_deadly
        self._on_death = on_death
        self.settings = settings
        self.broker = broker
        self.disk = disk
        self.loop = SteppedLoop(broker.world)
        self.loop.skew = skew
        self.loop.end_process = self._die
        self.link_up = True
        self.dead = False
        self.cut = False
        self.generation = 0
        self.broken: list[BaseException] = []
        self.killed_in: set[tuple[int, int]] = set()
        """Partition and epoch of each ownership that a kill from outside has ended."""
        self.leaving = False
        self._group = group
        self._feeds = Feeds(settings.session_timeout_s)
        self._assignments: asyncio.Queue[tuple[int, frozenset[int] | None]]
        self.worker: Worker
        broker.world.loops.append(self.loop)
        with self.loop.running():
            self.loop.create_task(self._main())

    @property
    def up(self) -> bool:
        return self.link_up and self.broker.up

    @property
    def heard(self) -> bool:
        """Whether its heartbeats reach the group."""
        return self.up and not self.dead and self.loop not in self.broker.world.suspended

    @property
    def partitions(self) -> list[Partition]:
        return [*self.worker.partitions.all.values()] if hasattr(self, "worker") else []

    def is_superseded(self, number: int) -> bool:
        """Whether another owner's fence stands behind this one's: what it does for the partition reaches nobody."""
        epoch = next((one.ownership.epoch for one in self.partitions if one.number == number), -1)
        log = self.broker.log(TopicPartition("tokens", number))
        return any(one.offset > epoch and one.visible and b'"fence"' in (one.value or b"") for one in log.entries)

    def kill(self) -> None:
        """Kill -9."""
        if not self.dead:
            owned = (one for one in self.partitions if one.state is State.OWNED)
            self.killed_in |= {(one.number, one.ownership.epoch) for one in owned}
            self._vanish()

    def _vanish(self) -> None:
        """What it has sent arrives for a moment longer."""
        self.dead = True
        world = self.broker.world
        world.suspended.discard(self.loop)
        world.loops.remove(self.loop)
        self.disk.release(self.name)
        self.loop.destroy()
        world.after(world.random.choice((0.0, 0.001, 0.01)), lambda: setattr(self, "cut", True))

    def suspend(self) -> None:
        if not self.dead:
            self.broker.world.suspended.add(self.loop)

    def resume(self) -> None:
        self.broker.world.suspended.discard(self.loop)

    def stop(self) -> None:
        """SIGTERM."""
        if not self.dead and not self.leaving:
            self.leaving = True
            with self.loop.running():
                self.loop.create_task(self._leave())

    def revoke(self, generation: int) -> None:
        self._told(generation, None)

    def assign(self, generation: int, numbers: frozenset[int]) -> None:
        self._told(generation, numbers)

    def _told(self, generation: int, numbers: frozenset[int] | None) -> None:
        """Heartbeats reveal it sooner or later; `leaving` processes have announced it."""
        if self.dead or self.leaving or generation != self._group.generation:
            return
        if self.up:
            self.loop.call_soon(self._assignments.put_nowait, (generation, numbers))
        else:
            self.broker.world.after(0.1, lambda: self._told(generation, numbers))

    def _submitted(self, jobs: Sequence[Job]) -> None:
        """The engine has these now; a deadly one ends the process before its first token."""
        deadly = [self._is_deadly(self, job) for job in jobs]
        if any(deadly):
            self.broker.world.after(0.5 / self.settings.paced_tokens_per_s, self._die)

    def _die(self) -> None:
        if not self.dead:
            self._vanish()
            self._on_death(self.name)

    def end_with(self, error: BaseException) -> None:
        """What app/application.py does about a worker that is broken; its supervisor starts it again."""
        if self.dead:
            return
        self.broken.append(error)
        if not self.leaving:
            self.leaving = True
            with self.loop.running():
                self.loop.create_task(self._end())

    async def _end(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(_GOODBYE_S):
                await self.worker.release(broken=True)
        self._group.leave(self)
        self._die()

    def _open_vectors(self, settings: Settings) -> MilvusStore:
        assert self._milvus is not None
        return MilvusStore(cast(Milvus, SimMilvus(self._milvus, self)), settings.milvus_collection)

    async def _main(self) -> None:
        self._assignments = asyncio.Queue()
        default, small = self._serving(NAME, DEFAULT_MODEL), [self._serving("small")] * self._small
        embedder = None if self._milvus is None else cast(Embedder, SameVector())
        chance, policy = self.broker.world.random, NO_POLICY if self._reads_late else self._policy
        guard = Guard(
            policy,
            lambda _rules: FickleAnalyzer(chance),
            chance.randbytes,
            load_judges=lambda _rules: FickleJudges(chance),
        )
        loaded = Loaded(ModelRegistry(default, *small), embedder, policy, guard=guard)
        self.worker = Worker(
            self.settings,
            loaded,
            self._feeds,
            self.end_with,
            clients=SimClients(self.settings, self),
            open_store=partial(_open_store, self.disk, self.name),
            open_vectors=self._open_vectors,
        )
        if self._crowded:
            _crowd(self.worker.partitions)
        await self.worker.start()
        if self._reads_late:
            await self._read_policy()
        self._group.join(self)
        while True:
            generation, numbers = await self._assignments.get()
            self.generation = 0  # nothing is handed out while a rebalance goes on
            if numbers is None:
                self._feeds.arrivals.revoke()
                await self.worker.partitions.revoked()
                self.broker.world.after(self.broker.world.latency(), partial(self._group.ready, self, generation))
                continue
            # Faust lets records flow as soon as it has announced the assignment, however long its handling takes.
            opened = self.broker.world.random.random() < 0.5
            if opened:
                self._feeds.open(self, generation, numbers)
                self.generation = generation
            others = set(range(self.settings.partitions)) - numbers
            standbys = {number for number in others if self.broker.world.random.random() < 0.5}
            self._feeds.arrivals.assign()
            await self.worker.partitions.assigned(numbers, standbys)
            if not opened:
                self._feeds.open(self, generation, numbers)
            self.generation = generation

    async def _read_policy(self) -> None:
        """As app/policy/watch.py does when the file has changed."""
        worker = self.worker
        for change in [await one.prepare(self._policy) for one in worker.features.all]:
            if change is not None:
                change.apply()
        for follower in (worker._prices, worker._intake, worker._offered, *worker.features.all, worker._switch):
            follower.use(self._policy)

    def _serving(self, name: str, *names: str) -> ServedModel:
        rate = self.settings.paced_tokens_per_s
        serving = paced(rate, name)
        engine = DeadlyEngine(rate, serving.model_version, self._submitted, self._fails)
        return replace(serving, engine=engine, names=serving.names | {*names}, has_logprobs=True)

    async def _leave(self) -> None:
        await self.worker.release()
        self._group.leave(self)
        await self.worker.stop()
        if not self.dead:
            self._vanish()


def _open_store(disk: Disk, owner: str, path: Path, *, now_ms: int, tombstones_kept_ms: int) -> PartitionStore:
    return MemoryStore.open_on(disk, path, owner=owner, now_ms=now_ms, tombstones_kept_ms=tombstones_kept_ms)


def _crowd(owner: Partitions) -> None:
    owner._token_producer.pace = TokenPace(busy_at=1, busy_rate=1.0, window_s_per_rate=0.005)
    owner._pacer = CommitPacer(per_s=3.0, burst=1, longest_s=1.0)
