"""The features of a worker in the order of their stages: the one list.

A stage stands around those behind it, in all three rings (app/answering/stage.py). Each stands where it does because:

    busy         A request that is rejected for others of its conversation is asked nothing else.
    steering     One whose words go into another answer is asked what all are, and no model.
    timers       A request that is refused for its time costs its tenant nothing.
    agents       One whose agent is not there, too.
    admission    A request that this deployment may not answer is refused before it costs its tenant anything.
    quota        Of a request that its tenant may not send, no model, judge or index sees anything.
    tool_rounds  Results of tools come from outside: the guard inside it reads them like a prompt.
    programs     They stand in the place of tools: each answer has one of the two.
    routing      A fallback begins a new prompt, so the guard inside it hides values from the next model, too.
    retry        Another model is asked once the same one has failed twice.
    forks        What is copied is read, hidden and judged like the rest.
    masking      Judges, recall, the cache and models get placeholders; readers get the values back.
    moderation   A blocked prompt is not searched for; an answer is judged before readers get it.
    recall       It searches with what the guard lets through.
    plugins      Other packages see what the guard lets through; what they change is what the cache compares.
    beginnings   The first tokens of a fork are judged and hidden like others, and the cache repeats no fork.
    cache        Each reader's own guard reads what is repeated. All candidates together are one answer.
    best_of      It calls the engine once for each candidate.
    egress       What the others leave of the turn is what readers of foreign topics get.
    asked        An end that no other stage has a word in is the result of a call.

To remove a feature, delete its module, what names it here, and its field in `Policy` (app/policy/file.py). `best_of`,
`forks`, `moderation`, `steering`, `programs`, `egress` and `asked` need no more. The others are fields of `Features`:
they have figures (`families_of`), or other parts of a worker call them, and the type checker names these places.
`admission` has those of Parley's own plug-ins (app/features/own), which are named in app/plugins/known.py.
`retry` is no feature: every answer has it, so it is in app/answering, as the attempts of replayed requests, which stand
around all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric

from app.answering.pipeline import Retry
from app.answering.stage import Feature
from app.delivery.partition import Partition
from app.features.admission import Admitting
from app.features.agents.asked import AskedAgents
from app.features.agents.named import NamedAgents
from app.features.best_of import BestOf
from app.features.busy import ConversationOrder
from app.features.cache.metrics import cache_families
from app.features.cache.stage import Cache
from app.features.foreign.egress import Egress
from app.features.forks import Beginnings, Forks
from app.features.guard.guard import Guard
from app.features.guard.masking import Masking
from app.features.guard.metrics import guard_families
from app.features.guard.moderation import Moderation
from app.features.host import WorkerParts
from app.features.plugged import PluggedIn, plugin_families
from app.features.programs.stage import Programs
from app.features.quota.metrics import budget_families
from app.features.quota.stage import Quota
from app.features.recall.metrics import recall_families
from app.features.recall.stage import Recall
from app.features.routing.metrics import canary_families
from app.features.routing.stage import Routing
from app.features.steering import Steering
from app.features.tool_rounds import ToolsOverKafka
from app.features.waits.metrics import asleep_families
from app.features.waits.timers import LaterRequests


@dataclass(frozen=True, slots=True)
class Features:
    """Those that have figures or that other parts of a worker call, and `all` of them in their order."""

    all: tuple[Feature, ...]
    busy: ConversationOrder
    quota: Quota
    timers: LaterRequests
    agents: NamedAgents
    tools: ToolsOverKafka
    routing: Routing
    masking: Masking
    recall: Recall
    plugged: PluggedIn
    cache: Cache


def features_of(host: WorkerParts, guard: Guard | None = None, plugged: PluggedIn | None = None) -> Features:
    """Without a `guard` and plug-ins that are loaded already, those of the policy."""
    guard = guard or Guard(host.policy)
    plugged = plugged or PluggedIn(host.policy, host.embedder, host.settings.here)
    busy = ConversationOrder()
    steering = Steering(busy)
    quota = Quota.of(host)
    tools = ToolsOverKafka(host.settings, host.policy, steering)
    timers = LaterRequests(tools)
    agents = NamedAgents(host.policy)
    routing = Routing.of(host)
    masking = Masking(guard)
    recall = Recall.of(host)
    cache = Cache.of(host)
    stages: tuple[Feature, ...] = (
        busy,
        steering,
        timers,
        agents,
        Admitting(plugged),
        quota,
        tools,
        Programs(tools, host.policy),
        routing,
        Retry(host.models, quota.may_name),
        Forks(),
        masking,
        Moderation(guard),
        recall,
        plugged,
        Beginnings(),
        cache,
        BestOf(plugged),
        Egress(host.policy),
        AskedAgents(tools, host.policy),
    )
    return Features(stages, busy, quota, timers, agents, tools, routing, masking, recall, plugged, cache)


def families_of(features: Features | None, partitions: Sequence[Partition] = ()) -> Iterable[Metric]:
    """The figures of the features, under the same names whether or not the worker has started."""
    yield from recall_families(None if features is None else features.recall)
    yield from guard_families(None if features is None else features.masking)
    yield from canary_families(None if features is None else features.routing)
    yield from cache_families(None if features is None else features.cache)
    yield from plugin_families(None if features is None else features.plugged)
    yield from budget_families(None if features is None else features.quota)
    yield from asleep_families(None if features is None else features.tools, partitions)
