"""Plug-ins among kills, rebalances, erasures and hostile records: `python -m tests.simulation --plugin NAME`.

Features, judges and stores run in the storms of this folder, in each simulated worker. All kinds are probed besides
(plugin_probes.py): by what no storm can give them. What is told is the promise that does not hold, and how that shows.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from parley_client.plugins import Kind, Plugin, PluginError

from app.features.guard.guard import Guard
from app.features.guard.judges.judges import Judges
from app.features.plugged import PluggedIn
from app.plugins.known import known, own
from app.plugins.running import PluginRoom
from app.policy.file import Policy
from app.policy.guard_rules import GuardRules
from app.search.plugged_store import PluggedStore
from app.settings import Settings
from app.wire.codec import decode
from app.wire.event import TokenEvent
from models.interface.generation import FinishReason
from tests.simulation import process
from tests.simulation.busy_features import busy_best_of_storm
from tests.simulation.findings import Findings, Outcome
from tests.simulation.hostile_storms import hostile_calm
from tests.simulation.plugin_probes import probe
from tests.simulation.process import Process
from tests.simulation.promises import AT_A_TIME, CLEAN, CONTAINED, ERASED, IN_TIME, PURE, STARTS, WHOLE, Broken
from tests.simulation.scenario import QUESTION, Simulation
from tests.simulation.storms import erasing_storm, recalling_storm, storm, tool_storm

SEEDS = 24
_MOST_S, _LATE = 300.0, 3
"""In a storm nothing happens while a plug-in works: a slow one gets fewer of them, and one that is late none."""
_STORMS: Mapping[Kind, tuple[Callable[[int], Simulation], ...]] = {
    Kind.FEATURES: (partial(storm, erases=0.2), tool_storm, hostile_calm),
    Kind.JUDGES: (partial(storm, erases=0.2), hostile_calm),
    Kind.STORES: (erasing_storm, recalling_storm),
}


@dataclass(frozen=True, slots=True)
class Checked:
    """`broken`: the promises that do not hold, each once, with the first sign of it."""

    plugin: Plugin
    storms: int
    broken: tuple[Broken, ...]


def check(
    name: str, settings: Mapping[str, Any], seeds: int = SEEDS, first: int = 0, said: Sequence[str] = ()
) -> list[Checked]:
    """All plug-ins of this name; raises `PluginError` if there is none."""
    plugins = [known(kind)[name] for kind in Kind if name in known(kind) and not _is_built_in(kind, name)]
    if not plugins:
        raise PluginError(f"no installed package has a plug-in {name!r}: `parley plugins` lists those that are there")
    return [_checked(one, settings, seeds, first, said) for one in plugins]


def _is_built_in(kind: Kind, name: str) -> bool:
    """Parley's own features are checked as any other."""
    return kind is not Kind.FEATURES and any(one.name == name for one in own(kind))


def _checked(plugin: Plugin, settings: Mapping[str, Any], seeds: int, first: int, said: Sequence[str]) -> Checked:
    broken: dict[str, Broken] = {}
    probed = probe(plugin, settings, said)
    for one in probed:
        broken.setdefault(one.promise, one)
    if STARTS in broken or sum(one.promise == IN_TIME for one in probed) >= _LATE:
        return Checked(plugin, 0, tuple(broken.values()))
    storms = _STORMS.get(plugin.kind, ())
    if plugin.kind is Kind.FEATURES:
        running = PluggedIn(Policy(plugins={plugin.name: dict(settings)})).on[plugin.name]
        storms += (busy_best_of_storm,) * running.has("choose")
    count, began = 0, time.monotonic()
    for seed in range(first, first + seeds) if storms else ():
        if time.monotonic() - began > _MOST_S:
            break
        count += 1
        make = storms[seed % len(storms)]
        with plugged_in(plugin, settings) as stored:
            simulation = make(seed)
            outcome = simulation.run()
            for one in _signs(plugin, simulation, outcome, stored):
                broken.setdefault(one.promise, Broken(one.promise, f"{one.sign} (seed {seed})"))
    return Checked(plugin, count, tuple(broken.values()))


@dataclass(slots=True)
class Stored:
    """What the stores of all workers have been given, and one through which it is read."""

    ids: set[str] = field(default_factory=set)
    reader: Any = None

    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows that are there."""
        rows = asyncio.run(self.reader.fetch(sorted(self.ids))) if self.reader is not None else []
        return {row["turn_id"]: dict(row) for row in rows}


@contextmanager
def plugged_in(plugin: Plugin, settings: Mapping[str, Any]) -> Iterator[Stored]:
    """While simulated workers have the plug-in on; of one thread, as their world is."""
    stored = Stored()
    with ExitStack() as patches:
        patches.enter_context(patch.object(PluginRoom, "threaded", False))
        policy_of = Simulation._policy
        if plugin.kind is Kind.FEATURES:
            patches.enter_context(
                patch.object(Simulation, "_policy", _method(_with_feature, policy_of, plugin, settings))
            )
        if plugin.kind is Kind.JUDGES:
            patches.enter_context(
                patch.object(Simulation, "_policy", _method(_with_judge, policy_of, plugin, settings))
            )
            patches.enter_context(patch.object(process, "Guard", _guard_of_judges))
        if plugin.kind is Kind.STORES:
            folder = Path(patches.enter_context(tempfile.TemporaryDirectory()))
            patches.enter_context(patch.object(Process, "_open_vectors", _method(_opened, plugin, folder, stored)))
        yield stored


def _method(function: Callable[..., Any], *before: Any) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any) -> Any:
        return function(*before, self, *arguments)

    return method


def _with_feature(
    policy_of: Callable[[Simulation], Policy], plugin: Plugin, settings: Mapping[str, Any], simulation: Simulation
) -> Policy:
    return msgspec.structs.replace(policy_of(simulation), plugins={plugin.name: dict(settings)})


def _with_judge(
    policy_of: Callable[[Simulation], Policy], plugin: Plugin, settings: Mapping[str, Any], simulation: Simulation
) -> Policy:
    """Its categories are noted and end nothing, so an answer that ends is its doing."""
    categories = {str(name): "flag" for name in plugin.made(dict(settings)).categories}
    rules = GuardRules(prompt=categories, answer=categories, judges={plugin.name: dict(settings)})  # type: ignore[arg-type]
    return msgspec.structs.replace(policy_of(simulation), guard=rules)


def _guard_of_judges(policy: Policy, load: Any, draw: Any, load_judges: Any) -> Guard:
    del load_judges
    return Guard(policy, load, draw, load_judges=Judges)


def _opened(plugin: Plugin, folder: Path, stored: Stored, worker: Process, settings: Settings) -> PluggedStore:
    settings = settings.model_copy(update={"milvus_uri": str(folder / "store")})
    store = PluggedStore(plugin, settings)
    made = plugin.made

    def troubled(options: Any) -> TroubledStore:
        stored.reader = stored.reader or made(options)
        return TroubledStore(made(options), worker, stored)

    store._plugin = _Made(plugin, troubled)  # type: ignore[assignment]
    return store


class _Made:
    """A plug-in whose object is made otherwise."""

    def __init__(self, plugin: Plugin, made: Callable[..., Any]) -> None:
        self.name, self.made = plugin.name, made


class TroubledStore:
    """A store behind a network: calls take time, some fail before or behind their effect, some land late."""

    def __init__(self, store: Any, worker: Process, stored: Stored) -> None:
        self._store, self._worker, self._stored = store, worker, stored

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._call, name)

    async def _call(self, name: str, *arguments: Any) -> Any:
        world = self._worker.broker.world
        trouble = world.random.random() if name in {"upsert", "erase", "search"} else 1.0
        await asyncio.sleep(world.latency())
        if trouble < 0.05:
            raise OSError("the network is away")
        if name == "upsert":
            self._stored.ids |= {row["turn_id"] for row in arguments[0]}
        if name == "upsert" and trouble < 0.1:
            late = self._worker.loop.create_task(self._late(arguments))
            await asyncio.shield(late)
        result = await getattr(self._store, name)(*arguments)
        if trouble > 0.95 and trouble < 1.0:
            raise OSError("the answer is lost")
        return result

    async def _late(self, arguments: Sequence[Any]) -> None:
        await asyncio.sleep(12.0)
        await self._store.upsert(*arguments)


def _signs(plugin: Plugin, simulation: Simulation, outcome: Outcome, stored: Stored) -> Iterator[Broken]:
    """What of a run shows a broken promise. The words of answers follow from prompts that the judge of the plain storms
    does not know: here the log has to agree with itself.
    """
    verdict = outcome.verdict
    events = _events(simulation)
    failed = [one.error.message for one in events if one.error is not None and plugin.name in one.error.message]
    if failed:
        yield Broken(CONTAINED, failed[0])
    filtered = [one for one in events if one.finish_reason is FinishReason.FILTERED]
    if plugin.kind is Kind.JUDGES and filtered:
        yield Broken(CONTAINED, f"{filtered[0].request_id} has no verdict")
    if verdict.torn_off:
        yield Broken(PURE, f"{verdict.torn_off[0]} could not go on and ended as partial")
    if plugin.kind is Kind.FEATURES:
        yield from _told_to_others(simulation)
    verdict.torn_off.clear()
    verdict.changed.clear()
    if not verdict.clean:
        yield Broken(WHOLE, verdict.line())
    if plugin.kind is Kind.STORES:
        yield from _rows(simulation, stored)
    ignored = ("ended as engine_error",) if failed else ()
    for line in outcome.wrong:
        if any(one in line for one in ignored) or (plugin.kind is Kind.STORES and line.startswith("row ")):
            continue
        yield Broken(ERASED if "erase" in line or "erasure" in line else WHOLE, line)
    for line in outcome.crashes:
        yield Broken(CLEAN, line)


def _rows(simulation: Simulation, stored: Stored) -> Iterator[Broken]:
    """The store's own rows, judged as those of the simulated Milvus."""
    assert simulation.milvus is not None
    try:
        simulation.milvus.rows = stored.rows()
    except Exception as error:  # noqa: BLE001 - it is the store's
        yield Broken(CONTAINED, f"fetch raises {type(error).__name__}")
        return
    findings = Findings(simulation)
    for line in findings._wrong_rows(findings._erasures()):
        yield Broken(ERASED if "should not" in line else AT_A_TIME, line)


def _told_to_others(simulation: Simulation) -> Iterator[Broken]:
    """A prompt with the question of another user. A hostile record may quote one itself."""
    quoted: dict[str, set[str]] = {}
    for log in (log for at, log in simulation.broker.logs.items() if at.topic == "requests"):
        for entry in log.entries:
            user = (entry.key or b"").decode(errors="replace")
            quoted.setdefault(user, set()).update(f"r{one.decode()}" for one in QUESTION.findall(entry.value or b""))
    asks: dict[str, set[str]] = {}
    for user, request_id in simulation.prompts:
        asks.setdefault(request_id, set()).add(user)
    for (user, request_id), prompts in simulation.prompts.items():
        for question in sorted(set().union(*prompts.values())):
            if question in asks and user not in asks[question] and question not in quoted.get(user, ()):
                yield Broken(ERASED, f"a model reads for {user} in {request_id} what another user asked in {question}")
                return


def _events(simulation: Simulation) -> list[TokenEvent]:
    logs = [log for at, log in simulation.broker.logs.items() if at.topic == "tokens"]
    entries = [entry for log in logs for entry in log.entries if entry.visible and not entry.marker]
    return [decode(TokenEvent, one.value, one.headers) for one in entries]


def report(name: str, settings: str, seeds: int, first: int, prompt: str | None = None) -> int:
    """Print what was found; the exit code."""
    try:
        checked = check(name, json.loads(settings or "{}"), seeds, first, () if prompt is None else (prompt,))
    except (PluginError, ValueError) as error:
        print(error)
        return 2
    for one in checked:
        print(f"{one.plugin}: {one.storms} storms, {len(one.broken)} promises broken", flush=True)
        for broken in one.broken:
            print(f"  {broken.promise}: {broken.sign}", flush=True)
    return 1 if any(one.broken for one in checked) else 0
