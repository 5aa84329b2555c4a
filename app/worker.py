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

from agents.answering import Answering
from agents.auditing import audit_of_retreat
from agents.candidates import Candidates
from agents.charging import Charging
from agents.comparing import Comparing
from agents.containment import Containment
from agents.controls import Controls
from agents.conversations import Conversations
from agents.decisions import Decisions
from agents.handlers import Handlers
from agents.history import History
from agents.masking import Masking
from agents.moderating import Moderating
from agents.recalling import Recalling
from agents.sweeper import Sweeper
from agents.tool_results import ToolResults
from agents.usage import UsageWindows
from app.delivery.batches import Batches
from app.delivery.cancels import Cancels
from app.delivery.clients import Clients
from app.delivery.commits.commit import Commit
from app.delivery.escalation import WORKER_ERRORS
from app.delivery.observer import UNOBSERVED, Observer, Observers
from app.delivery.ownership import FencedError, OpenStore
from app.delivery.partition import Partition
from app.delivery.partition_manager import Flow, PartitionManager
from app.delivery.resume.attempts import Attempts
from app.guard.analyzer import AnalyzerError
from app.guard.guard import Guard, GuardStats
from app.guard.judges.judges import Judges
from app.policy.canary import Canaries
from app.policy.file import NO_POLICY, Policy, PolicyError, read_policy
from app.policy.health import ModelHealth
from app.policy.load_figures import LoadFigures
from app.policy.planner import Planner
from app.policy.response_cache import ResponseCache
from app.policy.router import Router
from app.policy.shadows import Shadows
from app.policy.tenant_figures import TenantFigures
from app.policy.tenants import Tenants
from app.policy.usage_feed import UsageFeed
from app.policy.watch import PolicyWatch
from app.prices import PriceList
from app.search.index import HideError, IndexStats, RecallStats
from app.search.opening import open_index, open_related
from app.search.vector_store import OpenVectors, open_vectors
from app.serving.changes import ModelChanges
from app.serving.loading import LoadError, ModelLoader
from app.settings import Settings
from app.wire.turn import Turn
from models.embedder import Embedder, EmbedderError, load_embedder
from models.generation import Engine
from models.registry import ModelRegistry
from tables.conversations import MemoryRules
from tables.store import PartitionStore

log = logging.getLogger(__name__)

_CLOSE_S = 6.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is loaded from disk. `embedder` is None if nothing is indexed; without a `loader` the models stay."""

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
        open_vectors: OpenVectors = open_vectors,
    ) -> None:
        rules = MemoryRules(settings.conversation_turns, int(settings.conversation_ttl_s * 1000))
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
        self._index = open_index(
            settings,
            loaded.embedder,
            open_vectors,
            fatal=broken,
            owns=lambda number: self.owner.confirms(number),  # noqa: PLW0108 - `owner` is created last
            hide=self._indexed_turn,
        )
        self._history = History(settings, self._index, UNOBSERVED if loaded.embedder is None else observer)
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
        self._related = open_related(settings, loaded.embedder, open_vectors)
        self._masking = Masking(self._guard)
        recalling = Recalling(settings, loaded.policy, self._related)
        decisions = Decisions(planner, self._masking, Moderating(self._guard), recalling)
        self.tenants = Tenants(
            loaded.policy,
            TenantFigures(lambda: self.owner.now(), lambda: self.owner.partitions, settings.partitions),  # noqa: PLW0108
            region=settings.region,
            group=settings.worker_group,
        )
        attempts, containment = Attempts(), Containment(settings, loaded.servings)
        answering = Answering(
            settings,
            loaded.servings,
            rules,
            batches,
            decisions,
            self.cache,
            Candidates(batches, loaded.embedder),
            self.tenants,
            attempts,
        )
        shadows = Shadows(loaded.policy)
        conversations = Conversations(
            settings,
            loaded.servings,
            rules,
            cancels,
            observer,
            decisions,
            Charging(prices, self.tenants, loaded.servings),
            answering,
            Comparing(settings, loaded.servings, batches, shadows, prices),
            attempts,
            containment,
        )
        self._followers = (self.router, self.canaries, self.cache, recalling, prices, shadows, self.tenants)
        self._controls = Controls(settings, cancels, self._history, self._forget_cached)
        handlers = Handlers(
            settings,
            conversations,
            self._controls,
            self._history,
            UsageWindows(settings, prices),
            ToolResults(settings, containment),
            containment,
            expect_rebalance=self._expect_rebalance,
            broken=broken,
        )
        self.owner = PartitionManager(
            settings, handlers, flow, clients=clients, open_store=open_store, observer=observer
        )
        self._sweeper = Sweeper(settings, rules, self.owner, self._history, observer)
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def model_version(self) -> str:
        return self._loaded.servings.default.model_version

    @property
    def index_backlog(self) -> int:
        """Turns in memory that are not in Milvus yet."""
        return self._index.backlog

    @property
    def engines(self) -> list[Engine]:
        leaving = [] if self._models is None else self._models.leaving
        return [*self._loaded.servings.engines, *leaving]

    @property
    def oldest_erasure_s(self) -> float:
        return self._controls.oldest_erasure_s

    @property
    def recall_figures(self) -> RecallStats:
        return RecallStats() if self._related is None else self._related.stats

    @property
    def guard_figures(self) -> GuardStats:
        return self._guard.stats

    @property
    def index_figures(self) -> IndexStats:
        return self._index.stats()

    async def start(self) -> None:
        for engine in self._loaded.servings.engines:
            await engine.start()
        self._index.start()
        self._tasks.add(asyncio.create_task(self._sweep(), name="sweeper"))
        if self._settings.policy is not None:
            watch = PolicyWatch(
                self._settings.policy,
                self._loaded.policy,
                self._followers,
                (self._guard,) if self._models is None else (self._models, self._guard),
                (self.router.update, self.cache.update),
            )
            self._tasks.add(asyncio.create_task(watch.run(), name="policy"))
            feed = UsageFeed(self._settings, self.tenants)
            self._tasks.add(asyncio.create_task(feed.run(), name="usage-feed"))

    async def release(self, *, broken: bool = False) -> None:
        """Release the partitions: answers that are being written get the grace period, the next owners continue the
        rest. After that nobody owns them until this worker leaves the group, so it should leave at once.

        A worker that is `broken` skips the grace period, because the next owner is faster.
        """
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.owner.drain(0.0 if broken else self._settings.drain_s, orderly=not broken)

    async def stop(self) -> None:
        """Close everything else. The partitions are released, so nothing of it is worth a long wait: what hangs is left
        to the end of the process.
        """
        engines = [engine.stop() for engine in self._loaded.servings.engines]
        await _close(
            index=self._index.stop(),
            search=_nothing() if self._related is None else self._related.close(),
            models=_nothing() if self._models is None else self._models.stop(),
            engines=asyncio.gather(*engines),
        )
        embedder = self._loaded.embedder
        await _close(
            guard=self._guard.stop(),
            embedder=_nothing() if embedder is None else asyncio.to_thread(embedder.close),
        )

    def _expect_rebalance(self, partition: Partition, error: FencedError) -> None:
        self._tasks.add(asyncio.create_task(self._await_rebalance(partition, error), name="fenced"))

    async def _await_rebalance(self, partition: Partition, error: FencedError) -> None:
        if not await self.owner.settle_fenced(partition):
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

    def _retreated(self, number: int, experiment: str, arm: str) -> None:
        if (partition := self.owner.owned(number)) is not None:
            audit = audit_of_retreat(experiment, arm, partition.ownership.clock.now())
            partition.spawn(partition.commit(Commit(audit=audit)))

    def _forget_cached(self, user_id: str) -> None:
        """Drop what memories of this process hold of an erased user."""
        self.cache.forget(user_id)
        self._guard.forget(user_id)

    async def _indexed_turn(self, number: int, turn: Turn) -> Turn | None:
        """The turn as the index may have it; None if its partition has left. Raises `HideError`."""
        partition = self.owner.owned(number)
        try:
            return None if partition is None else await self._masking.indexed(partition, turn)
        except AnalyzerError as error:
            raise HideError(str(error)) from error


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
