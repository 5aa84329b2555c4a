"""Assemble a worker from its parts.

`load` does what is slow and can fail because of the setup: loading the model and the embedder. It runs before the
worker joins its group. `start` and `stop` belong to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import TopicPartition
from parley_client.plugins import PluginError

from agents.controls import Controls
from agents.intake import Intake, reader_of
from agents.requests import Requests
from agents.tool_results import ToolResults
from agents.turns import Turns
from agents.usage import UsageWindows
from app.answering.batches import Batches
from app.answering.containment import Containment
from app.answering.pipeline import Pipeline
from app.answering.stage import Switch
from app.delivery.cancels import Cancels
from app.delivery.clients import Clients
from app.delivery.escalation import WORKER_ERRORS
from app.delivery.observer import UNOBSERVED, Observer, Observers
from app.delivery.ownership import FencedError, OpenStore
from app.delivery.partition import Partition, Receive, State
from app.delivery.partitions import Partitions
from app.delivery.record import CONTROLS, REQUESTS, TURNS, Record, RecordSource
from app.delivery.sweeper import Sweeper
from app.features.foreign.taking import next_of
from app.features.guard.guard import Guard
from app.features.guard.judges.judges import Judges
from app.features.host import WorkerParts
from app.features.order import features_of
from app.features.plugged import PluggedIn
from app.features.quota.usage_feed import UsageFeed
from app.features.waits.clock import WaitClock
from app.foreign.formats import foreign_topics
from app.plugins.known import check_names
from app.policy.check import read_policy
from app.policy.file import NO_POLICY, Policy, PolicyError
from app.policy.watch import PolicyWatch
from app.prices import PriceList
from app.search.index import IndexStats
from app.search.opening import check_store, open_index, open_vectors
from app.search.vector_store import OpenVectors
from app.serving.changes import ModelChanges
from app.serving.loading import LoadError, ModelLoader
from app.serving.model_check import log_reports
from app.serving.offered import OfferedModels
from app.settings import Settings
from models.embedder import Embedder, EmbedderError, load_embedder
from models.interface.generation import Engine
from models.served.registry import ModelRegistry
from tables.conversations import MemoryRules
from tables.store import PartitionStore

log = logging.getLogger(__name__)

_CLOSE_S = 6.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is loaded from disk. `embedder` is None if nothing is indexed; without a `loader` the models stay."""

    models: ModelRegistry
    embedder: Embedder | None
    policy: Policy = NO_POLICY
    loader: ModelLoader | None = None
    guard: Guard | None = None
    plugged: PluggedIn | None = None


def load(settings: Settings, on_fatal: Callable[[str], None]) -> Loaded:
    """Load the policy and the models; raises `LoadError`."""
    try:
        check_names()
        check_store(settings)
        policy = read_policy(settings)
        foreign_topics(policy)  # a schema that cannot be used is no reason to join the group
        embedder = load_embedder(settings.embedder, background=True) if settings.has_index else None
        guard = Guard(policy, load_judges=partial(Judges, embedder=embedder))
        plugged = PluggedIn(policy, embedder, settings.here)
    except (EmbedderError, PluginError, PolicyError) as error:
        raise LoadError(str(error)) from None
    loader = ModelLoader(settings, on_fatal)
    try:
        models = ModelRegistry(*loader.load(policy))
    except ValueError as error:
        raise LoadError(str(error)) from None
    return Loaded(models, embedder, policy, loader, guard, plugged)


class Worker:
    """The parts of one worker while its event loop runs, and the host of its partitions.

    `broken` is called with an error that must end the process, `taken_over` with each partition that is owned now.
    """

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        source: RecordSource,
        broken: Callable[[BaseException], None],
        *,
        clients: Clients | None = None,
        open_store: OpenStore = PartitionStore.open,
        observer: Observer = UNOBSERVED,
        open_vectors: OpenVectors = open_vectors,
        taken_over: Callable[[Partition], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._taken_over = taken_over
        self._loaded = loaded
        self._broken = broken
        models = loaded.models
        self._prices = PriceList(settings.prices, loaded.policy)
        host = WorkerParts(
            settings,
            loaded.policy,
            models,
            self._prices,
            loaded.embedder,
            open_vectors,
            time.monotonic,
            now=lambda: self.partitions.now(),  # noqa: PLW0108 - `partitions` come later
            owned=lambda: self.partitions.all,
        )
        self.features = features_of(host, loaded.guard, loaded.plugged)
        self._index = open_index(
            settings,
            loaded.embedder,
            open_vectors,
            fatal=broken,
            owns=lambda number: self.partitions.confirms(number),  # noqa: PLW0108 - `partitions` come later
            hide=lambda number, turn: self.features.masking.indexed(self.partitions.owned(number), turn),
        )
        switch = self._switch = Switch(self.features.all)
        observer = Observers(observer, others=switch.observers)
        self._offered = OfferedModels(settings, loaded.policy, models)
        self.partitions = Partitions(
            settings,
            self,
            source,
            clients=clients,
            open_store=open_store,
            observer=observer,
            models=self._offered.names,
        )
        batches = Batches(
            max_size=settings.batch_max_size,
            budget_s=settings.batch_budget_ms / 1000,
            observe=observer.batch_left,
        )
        self._models = None
        if loaded.loader is not None:
            self._models = ModelChanges(loaded.loader, models, batches.forget)
        rules = MemoryRules(settings.conversation_turns, int(settings.conversation_ttl_s * 1000))
        containment = Containment(Pipeline(settings, models, rules, batches, switch), observer)
        cancels = Cancels()
        self._turns = Turns(settings, self._index, UNOBSERVED if loaded.embedder is None else observer)
        self._controls = Controls(settings, cancels, self._turns, self.features.tools, self._forget)
        requests = Requests(settings, containment, cancels, observer, self.features)
        self._parks = partial(self.features.busy.parks, read=requests.read)
        self.agents: dict[str, Receive] = {
            REQUESTS: requests.receive,
            CONTROLS: self._controls.receive,
            TURNS: self._turns.receive,
        }
        self._intake = Intake(settings, clients or Clients(settings), loaded.policy)
        self._followers = (
            UsageWindows(settings, self._prices),
            ToolResults(settings, self.features.tools),
            WaitClock(self.features.tools),
            self._intake,
        )
        self._sweeper = Sweeper(settings, rules, self.partitions, self._turns, observer)
        self._tasks: set[asyncio.Task[Any]] = set()

    def receive(self, partition: Partition, record: Record) -> None:
        self.agents[record.topic](partition, record)

    def parks(self, partition: Partition, record: Record) -> bool:
        return self._parks(partition, record)

    def owned(self, partition: Partition) -> None:
        for follower in self._followers:
            follower.begin(partition)
        self._taken_over(partition)

    def released(self, partition: Partition) -> None:
        self._turns.release(partition.number)

    def fenced(self, partition: Partition, error: FencedError) -> None:
        log.warning("%s; its answers continue there", error)
        self._tasks.add(asyncio.create_task(self._await_rebalance(partition, error), name="fenced"))

    def broken(self, error: BaseException) -> None:
        self._broken(error)

    @property
    def model_version(self) -> str:
        return self._loaded.models.default.model_version

    @property
    def index_backlog(self) -> int:
        """Turns in memory that are not in Milvus yet."""
        return self._index.backlog

    @property
    def engines(self) -> list[Engine]:
        leaving = [] if self._models is None else self._models.leaving
        return [*self._loaded.models.engines, *leaving]

    @property
    def oldest_erasure_s(self) -> float:
        return self._controls.oldest_erasure_s

    @property
    def intake_positions(self) -> dict[TopicPartition, int]:
        """Up to where the records of the foreign partitions that this worker reads are taken."""
        owned = {number: one for number, one in self.partitions.all.items() if one.state is State.OWNED}
        readers = {at: owned.get(reader_of(at, self._settings.partitions)) for at in self._intake.places()}
        return {at: next_of(reader, at) for at, reader in readers.items() if reader is not None}

    @property
    def index_figures(self) -> IndexStats:
        return self._index.stats()

    async def start(self) -> None:
        log_reports(self._loaded.models)
        for engine in self._loaded.models.engines:
            await engine.start()
        if self._loaded.guard is not None:
            await self._loaded.guard.warm()
        self._index.start()
        self._tasks.add(asyncio.create_task(self._sweep(), name="sweeper"))
        if self._settings.policy is not None:
            watch = PolicyWatch(
                self._settings,
                self._loaded.policy,
                (self._prices, self._intake, self._offered, *self.features.all, self._switch),
                (*([] if self._models is None else [self._models]), self._intake, *self.features.all),
                [one.update for one in self.features.all],
            )
            self._tasks.add(asyncio.create_task(watch.run(), name="policy"))
            feed = UsageFeed(self._settings, self.features.quota.tenants)
            self._tasks.add(asyncio.create_task(feed.run(), name="usage-feed"))

    async def release(self, *, broken: bool = False) -> None:
        """Release the partitions: answers that are being written get the grace period, the next owners continue the
        rest. After that no worker owns them until this worker leaves the group, so it should leave at once.

        A worker that is `broken` skips the grace period, because the next owner is faster.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.partitions.drain(0.0 if broken else self._settings.drain_s, orderly=not broken)

    async def stop(self) -> None:
        """Close everything else. The partitions are released, so nothing of it is worth a long wait: what hangs is left
        to the end of the process.
        """
        engines = [engine.stop() for engine in self._loaded.models.engines]
        await _close(
            index=self._index.stop(),
            features=asyncio.gather(*(one.close() for one in self.features.all)),
            models=_nothing() if self._models is None else self._models.stop(),
            engines=asyncio.gather(*engines),
        )
        embedder = self._loaded.embedder
        await _close(embedder=_nothing() if embedder is None else asyncio.to_thread(embedder.close))

    async def _await_rebalance(self, partition: Partition, error: FencedError) -> None:
        if not await self.partitions.await_rebalance(partition):
            self._broken(error)

    async def _sweep(self) -> None:
        while True:
            try:
                await self._sweeper.run()
            except WORKER_ERRORS as error:
                self._broken(error)
                return
            except Exception:
                log.exception("a sweep has failed; the next one begins in %g s", self._settings.sweep_interval_s)
                await asyncio.sleep(self._settings.sweep_interval_s)

    def _forget(self, user_id: str) -> None:
        """Drop what memories of this process hold of an erased user."""
        for feature in self.features.all:
            feature.forget(user_id)


async def _nothing() -> None:
    return None


async def _close(**parts: Awaitable[Any]) -> None:
    """Close these parts together; one that takes too long or fails delays no other."""
    tasks = {asyncio.ensure_future(part): name for name, part in parts.items()}
    await asyncio.wait(tasks, timeout=_CLOSE_S)
    for task, name in tasks.items():
        if not task.done():
            task.cancel()
            log.info("closing: the %s has not ended within %g s and is left behind", name, _CLOSE_S)
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("closing: the %s has failed", name, exc_info=error)
