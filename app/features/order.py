"""The features of a worker in the order of their stages: the one list.

A stage stands around those behind it, in all three rings (app/answering/stage.py). Each stands where it does because:

    attempts     What is recorded first survives whatever the others do to the worker.
    quota        Of a request that its tenant may not send, no model, judge or index sees anything.
    tool_rounds  Results of tools come from outside: the guard inside it reads them like a prompt.
    routing      A fallback begins a new prompt, so the guard inside it hides values from the next model, too.
    masking      Judges, recall, the cache and models get placeholders; readers get the values back.
    moderation   A blocked prompt is not searched for; an answer is judged before readers get it.
    recall       It searches with what the guard lets through.
    cache        Each reader's own guard reads what is repeated. All candidates together are one answer.
    best_of      It calls the engine once for each candidate.
    shadow       It only asks once the request is committed.

To remove a feature, delete its module, its line here and its field in `Policy` (app/policy/file.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.answering.attempts import Attempts
from app.answering.stage import Feature
from app.features.best_of import BestOf
from app.features.cache.recordings import ResponseCache
from app.features.cache.stage import Cache
from app.features.guard.guard import Guard
from app.features.guard.masking import Masking
from app.features.guard.moderation import Moderation
from app.features.quota.stage import Quota
from app.features.quota.tenants import Tenants
from app.features.recall import Recall
from app.features.routing.canary import Canaries
from app.features.routing.health import ModelHealth
from app.features.routing.router import Router
from app.features.routing.stage import Routing
from app.features.shadow import Shadows
from app.features.tool_rounds import ToolsOverKafka
from app.policy.file import Policy
from app.prices import PriceList
from app.settings import Settings
from models.embedder import Embedder
from models.registry import ModelRegistry

if TYPE_CHECKING:
    from app.search.related import RelatedTurns


@dataclass(frozen=True, slots=True)
class Features:
    """Those that other parts of a worker call, and `all` of them in their order."""

    all: tuple[Feature, ...]
    quota: Quota
    tools: ToolsOverKafka
    routing: Routing
    masking: Masking
    cache: ResponseCache


def features_of(
    settings: Settings,
    policy: Policy,
    models: ModelRegistry,
    guard: Guard,
    tenants: Tenants,
    router: Router,
    canaries: Canaries,
    related: RelatedTurns | None,
    embedder: Embedder | None,
    clock: Callable[[], float],
) -> Features:
    """`clock` is monotonic, in seconds."""
    prices = PriceList(settings.prices, policy)
    quota = Quota(tenants, prices, models)
    tools = ToolsOverKafka(settings)
    routing = Routing(router, models, ModelHealth(clock), canaries, quota.may_name)
    masking = Masking(guard)
    cache = ResponseCache(policy, clock)
    stages: tuple[Feature, ...] = (
        Attempts(),
        quota,
        tools,
        routing,
        masking,
        Moderation(guard),
        Recall(settings, policy, related),
        Cache(cache),
        BestOf(embedder),
        Shadows(settings, models, prices, policy),
    )
    return Features(stages, quota, tools, routing, masking, cache)
