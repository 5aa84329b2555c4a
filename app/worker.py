"""Assemble a worker from its parts.

`load` does what is slow and can fail because of the setup: loading the model and the embedder. It runs before the
worker joins its group. `start` and `stop` belong to the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from agents.answering import Answering
from agents.auditing import audit_of_retreat
from agents.candidates import Candidates
from agents.charging import Charging
from agents.comparing import Comparing
from agents.controls import Controls
from agents.conversations import Conversations
from agents.history import History
from agents.masking import Masking
from agents.moderating import Moderating
from agents.outcomes import reduced
from agents.recalling import Recalling
from agents.sweeper import Sweeper
from agents.tool_results import ToolResults
from agents.usage import UsageWindows
from app.delivery.batches import Batches
from app.delivery.cancels import Cancels
from app.delivery.clients import RETRIABLE_ERRORS, Clients
from app.delivery.commits.commit import Commit
from app.delivery.inflight import InFlightRequest
from app.delivery.observer import UNOBSERVED, Observer
from app.delivery.ownership import FencedError, OpenStore
from app.delivery.partition import Partition, State
from app.delivery.partition_manager import Flow, PartitionManager
from app.delivery.record import CONTROLS, REQUESTS, TURNS, Record
from app.guard.guard import Guard, GuardStats
from app.guard.judges.judges import Judges
from app.model_loading import LoadError, ModelLoader
from app.policy.canary import Canaries
from app.policy.file import NO_POLICY, Policy, PolicyError, read_policy
from app.policy.health import ModelHealth
from app.policy.load_figures import LoadFigures
from app.policy.models import ModelChanges
from app.policy.planner import Planner
from app.policy.response_cache import ResponseCache
from app.policy.router import Router
from app.policy.shadows import Shadows
from app.policy.tenants import TenantFigures, Tenants
from app.policy.usage_feed import UsageFeed
from app.policy.watch import PolicyWatch
from app.prices import PriceList
from app.search.sink import HistorySink, NoHistory
from app.search.stats import RecallStats, WriterStats
from app.settings import Settings
from app.telemetry.observers import Observers
from app.wire.turn import Turn
from models.embedder import Embedder, EmbedderError, load_embedder
from models.generation import Engine
from models.registry import ModelRegistry
from tables.conversations import MemoryRules
from tables.store import PartitionStore

if TYPE_CHECKING:
    from app.search.milvus import Milvus
    from app.search.related import RelatedTurns

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is loaded from disk. `embedder` is None if no history is kept; without a `loader` the models stay."""

    servings: ModelRegistry
    embedder: Embedder | None
    policy: Policy = NO_POLICY
    loader: ModelLoader | None = None
    guard: Guard | None = None


def load(settings: Settings, on_fatal: Callable[[str], None]) -> Loaded:
    """Load the policy and the models; raises `LoadError`."""
    try:
        policy = read_policy(settings.policy)
        embedder = None if settings.embedder == "none" else load_embedder(settings.embedder, background=True)
        guard = Guard(policy, load_judges=partial(Judges, embedder=embedder))
    except (EmbedderError, PolicyError) as error:
        raise LoadError(str(error)) from None
    loader = ModelLoader(settings, on_fatal)
    try:
        servings = ModelRegistry(*loader.load(policy))
    except ValueError as error:
        raise LoadError(str(error)) from None
    return Loaded(servings, embedder, policy, loader, guard)


class Worker:
    """The parts of one worker while its event loop runs. `broken` is called with an error that must end the process."""

    def __init__(
        self,
        settings: Settings,
        loaded: Loaded,
        flow: Flow,
        broken: Callable[[BaseException], None],
        *,
        clients: Clients | None = None,
        open_store: OpenStore = PartitionStore.open,
        observer: Observer = UNOBSERVED,
        milvus: Milvus | None = None,
    ) -> None:
        rules = MemoryRules(settings.history_turns, int(settings.conversation_ttl_s * 1000))
        self._settings = settings
        self._loaded = loaded
        self._broken = broken
        cancels = Cancels()
        batches = Batches(
            max_size=settings.batch_max_size,
            budget_s=settings.batch_budget_ms / 1000,
            observe=observer.batch_left,
        )
        self._guard = loaded.guard or Guard(loaded.policy)
        self._sink = self._history_sink(milvus)
        self._history = History(settings, self._sink, UNOBSERVED if loaded.embedder is None else observer)
        load = LoadFigures(lambda: sum(engine.stats.waiting for engine in loaded.servings.engines))
        self.canaries = Canaries(loaded.policy, self._retreated)
        observer = Observers(observer, load, self.canaries)
        self.router = Router(loaded.policy, time.monotonic, load.now, self.canaries.is_out)
        self.cache = ResponseCache(loaded.policy, time.monotonic)
        planner = Planner(self.router, loaded.servings, ModelHealth(time.monotonic))
        self._models = None
        if loaded.loader is not None:
            self._models = ModelChanges(loaded.loader, loaded.servings, batches.forget)
        prices = PriceList(settings, loaded.policy)
        self._related = self._related_turns(milvus)
        self._masking = Masking(self._guard)
        moderating = Moderating(self._guard)
        recalling = Recalling(settings, loaded.policy, self._related)
        self.tenants = Tenants(
            loaded.policy, TenantFigures(self._now, lambda: self.owner.partitions, settings.partitions)
        )
        answering = Answering(
            settings,
            loaded.servings,
            rules,
            batches,
            planner,
            self.cache,
            self._masking,
            moderating,
            recalling,
            Candidates(batches, loaded.embedder),
            self.tenants,
        )
        shadows = Shadows(loaded.policy)
        self._conversations = Conversations(
            settings,
            loaded.servings,
            rules,
            cancels,
            observer,
            planner,
            self._masking,
            moderating,
            recalling,
            Charging(prices, self.tenants, loaded.servings),
            answering,
            Comparing(settings, loaded.servings, batches, shadows, prices),
        )
        self._followers = (self.router, self.canaries, self.cache, recalling, prices, shadows, self.tenants)
        self._take = {
            REQUESTS: self._conversations.handle,
            CONTROLS: Controls(settings, cancels, self._history, self.cache.forget).handle,
            TURNS: self._history.handle,
        }
        self.owner = PartitionManager(settings, self, flow, clients=clients, open_store=open_store, observer=observer)
        self._usage = UsageWindows(settings, prices)
        self._tool_results = ToolResults(settings)
        self._sweeper = Sweeper(settings, rules, self.owner, self._history, observer)
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def model_version(self) -> str:
        return self._loaded.servings.default.model_version

    @property
    def history_backlog(self) -> int:
        """Turns in memory that are not in Milvus yet."""
        return self._sink.backlog

    @property
    def engines(self) -> list[Engine]:
        leaving = [] if self._models is None else self._models.leaving
        return [*self._loaded.servings.engines, *leaving]

    @property
    def recall_figures(self) -> RecallStats:
        return RecallStats() if self._related is None else self._related.stats

    @property
    def guard_figures(self) -> GuardStats:
        return self._guard.stats

    @property
    def history_figures(self) -> WriterStats:
        return self._sink.stats()

    async def start(self) -> None:
        for engine in self._loaded.servings.engines:
            await engine.start()
        self._sink.start()
        self._tasks.add(asyncio.create_task(self._sweep(), name="sweeper"))
        if self._settings.policy is not None:
            change = None if self._models is None else self._models.use
            watch = PolicyWatch(
                self._settings.policy,
                self._loaded.policy,
                self._followers,
                change,
                (self.router.update, self.cache.update),
                self._guard.change,
            )
            self._tasks.add(asyncio.create_task(watch.run(), name="policy"))
            feed = UsageFeed(self._settings, self.tenants)
            self._tasks.add(asyncio.create_task(feed.run(), name="usage-feed"))

    async def stop(self, *, broken: bool = False) -> None:
        """Leave in an orderly way: running answers get the grace period; their next owners continue the rest.

        A worker that is `broken` skips the grace period, because the next owner is faster.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.owner.drain(0.0 if broken else self._settings.drain_s, orderly=not broken)
        await self._sink.stop()
        if self._related is not None:
            await self._related.close()
        if self._models is not None:
            await self._models.stop()
        for engine in self._loaded.servings.engines:
            await engine.stop()
        await self._guard.stop()
        if self._loaded.embedder is not None:
            await asyncio.to_thread(self._loaded.embedder.close)

    # Implements the handlers of a partition.

    def handle(self, partition: Partition, record: Record) -> None:
        self._take[record.topic](partition, record)

    def reduced(self, commit: Commit, reason: str) -> Commit:
        return reduced(commit, reason, self._settings)

    async def answer(self, partition: Partition, inflight: InFlightRequest) -> None:
        await self._conversations.answer(partition, inflight)

    def owned(self, partition: Partition) -> None:
        self._usage.begin(partition)
        self._tool_results.begin(partition)

    def released(self, partition: Partition) -> None:
        self._history.release(partition.number)

    def fenced(self, partition: Partition, error: FencedError) -> None:
        """Another worker owns the partition, and the group's assignment will follow.

        If it does not, a worker that the group had expelled came back for a moment, or two groups share one app id.
        """
        log.warning("%s; its answers continue there", error)
        self._tasks.add(asyncio.create_task(self._expect_rebalance(partition, error), name="fenced"))

    def broken(self, error: BaseException) -> None:
        self._broken(error)

    async def _expect_rebalance(self, partition: Partition, error: FencedError) -> None:
        await asyncio.sleep(2 * self._settings.session_timeout_s)
        still_ours = self.owner.partitions.get(partition.number) is partition and partition.state is State.FENCED
        if still_ours and not self.owner.retake(partition):
            self._broken(error)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.sweep_interval_s)
            try:
                await self._sweeper.sweep()
            except Exception as error:  # noqa: BLE001 - handed on: the worker ends with it
                self._broken(error)
                return

    def _retreated(self, number: int, experiment: str, arm: str) -> None:
        if (partition := self.owner.owned(number)) is not None:
            audit = audit_of_retreat(experiment, arm, partition.ownership.clock.now())
            partition.spawn(partition.commit(Commit(audit=audit)))

    def _now(self) -> int:
        """The broker's clock as the owner of any partition knows it, Unix milliseconds."""
        owned = (one for one in self.owner.partitions.values() if one.state is State.OWNED)
        partition = next(owned, None)
        return time.time_ns() // 1_000_000 if partition is None else partition.ownership.clock.now()

    async def _owns(self, number: int) -> bool:
        """Whether Kafka confirms that a partition belongs to this worker; waits while Kafka is unreachable."""
        while (partition := self.owner.owned(number)) is not None:
            try:
                return await partition.ownership.is_confirmed()
            except RETRIABLE_ERRORS:
                await asyncio.sleep(_ASK_AGAIN_S)
        return False

    async def _indexed_turn(self, number: int, turn: Turn) -> Turn | None:
        """The turn as the index may have it; None if its partition has left. Raises `AnalyzerError`."""
        partition = self.owner.owned(number)
        return None if partition is None else await self._masking.indexed(partition, turn)

    def _related_turns(self, milvus: Milvus | None) -> RelatedTurns | None:
        if self._loaded.embedder is None:
            return None
        # These modules import pymilvus, which takes longer than all the rest of a worker.
        from app.search.milvus import Milvus  # noqa: PLC0415
        from app.search.query import HistorySearch  # noqa: PLC0415
        from app.search.related import RelatedTurns  # noqa: PLC0415

        # A connection of its own: the writer's may be waiting for a server that hangs.
        milvus = milvus or Milvus(self._settings.milvus_uri, self._settings.milvus_token)
        search = HistorySearch(milvus, self._settings.milvus_collection, self._loaded.embedder)
        return RelatedTurns(search, milvus, self._settings.milvus_collection)

    def _history_sink(self, milvus: Milvus | None) -> HistorySink:
        if self._loaded.embedder is None:
            return NoHistory()
        # These modules import pymilvus, which takes longer than all the rest of a worker.
        from app.search.milvus import Milvus  # noqa: PLC0415
        from app.search.writer import HistoryWriter  # noqa: PLC0415

        return HistoryWriter(
            milvus or Milvus(self._settings.milvus_uri, self._settings.milvus_token),
            self._settings.milvus_collection,
            self._loaded.embedder,
            fatal=self._broken,
            owns=self._owns,
            hide=self._indexed_turn,
            batch_rows=self._settings.index_batch,
            delay_s=self._settings.index_delay_s,
            flush_s=self._settings.index_flush_s,
        )
