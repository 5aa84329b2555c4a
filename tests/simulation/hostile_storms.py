"""Storms with hostile records, and storms that kill workers while requests begin."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from unittest.mock import patch
from weakref import WeakSet

from app.answering.pipeline import Retrying
from app.delivery.inflight import InFlight
from app.delivery.partition import State
from models.interface.generation import Failure
from models.served.registry import ServedModel
from tests.simulation.faults import inflict, kill
from tests.simulation.hostile import MAKERS, besieged
from tests.simulation.process import Process
from tests.simulation.scenario import Conditions, Load, Simulation
from tests.simulation.storms import (
    crowded_storm,
    erasing_storm,
    expiring_storm,
    guarded_storm,
    mixed_storm,
    recalling_storm,
    routed_storm,
    storm,
    tool_storm,
    wide_storm,
)

STORMS: tuple[Callable[[int], Simulation], ...] = (
    storm,
    wide_storm,
    tool_storm,
    mixed_storm,
    routed_storm,
    guarded_storm,
    recalling_storm,
    crowded_storm,
    erasing_storm,
    expiring_storm,
)

FAILED: WeakSet[InFlight] = WeakSet()
"""The requests whose model has failed in this process."""
_KILLS = 4
_WITHIN_S = 15.0
_APART_S = 0.2


_TRIES_AGAIN = Retrying._tries_again


def _note_failure(stage: Retrying, failure: Failure, model: ServedModel) -> bool:
    FAILED.add(stage.run.inflight)
    return _TRIES_AGAIN(stage, failure, model)


patch.object(Retrying, "_tries_again", _note_failure).start()


def hostile_storm(seed: int, kinds: Sequence[str] = ()) -> Simulation:
    """A storm of each sort in turn, with hostile records among its requests."""
    return besieged(STORMS[seed % len(STORMS)](seed), kinds=kinds)


def hostile_calm(seed: int, kinds: Sequence[str] = ()) -> Simulation:
    """Hostile records, and nothing else that goes wrong: no partition has a reason to begin a second epoch."""
    load = Load(requests=6 + seed % 6, tools=0.3 if seed % 2 else 0.0)
    simulation = Simulation(seed, workers=1 + seed % 2, partitions=1 + seed // 2 % 2, load=load)
    return besieged(simulation, kinds=kinds or [kind for kind in MAKERS if kind != "deadly"])


def hostile_index(seed: int) -> Simulation:
    """Turns that an analyzer cannot read, among good ones and erasures, on their way to Milvus."""
    load = Load(requests=8, erases=0.3 if seed % 2 else 0.0)
    conditions = Conditions(milvus=True, pii="mask")
    return besieged(
        Simulation(seed, workers=1 + seed % 2, load=load, conditions=conditions), kinds=("unjudged", "staged")
    )


def killed_four_times(seed: int) -> Simulation:
    """A request that ends its worker, and four kills from outside within 15 s, each while another request begins."""
    chance = random.Random(f"killed thrice {seed}")
    load = Load(requests=8, users=4, over_s=5.0, deadly=0.15)
    simulation = Simulation(seed, workers=1 + seed % 3, load=load)
    _kill_while(simulation, chance, _begins_one)
    return simulation


def killed_while_failing(seed: int) -> Simulation:
    """Four kills from outside, each while a replayed request is tried again because its model has failed."""
    load = Load(requests=8, users=4, over_s=5.0, failing=0.8)
    simulation = Simulation(seed, workers=1 + seed % 3, load=load, conditions=Conditions(routed=True))
    _kill_while(simulation, random.Random(f"killed while failing {seed}"), _fails_one, within_s=60.0)
    return simulation


def killed_often(seed: int) -> Simulation:
    """A dozen kills from outside within a minute, at any moments of long answers: each answer has grown between two."""
    load = Load(requests=6, users=3, tokens=80, over_s=5.0, repeats=0.1, tools=0.2)
    simulation = Simulation(seed, workers=1 + seed % 3, load=load)
    simulation.keep_running(60.0)
    chance = random.Random(f"killed often {seed}")
    for _ in range(12):
        simulation.world.after(chance.uniform(1.0, 55.0), partial(inflict, simulation, kill))
    return simulation


def _kill_while(
    simulation: Simulation,
    chance: random.Random,
    is_moment: Callable[[Simulation, Process], bool],
    within_s: float = _WITHIN_S,
) -> None:
    simulation.keep_running(within_s + 5.0)
    began, killed = simulation.world.now, list[float]()

    def watch() -> None:
        now = simulation.world.now
        if len(killed) == _KILLS or now - began > within_s:
            return
        ready = [process for process in simulation.alive if is_moment(simulation, process)]
        if ready and (not killed or now - killed[-1] > _APART_S) and chance.random() < 0.2:
            process = chance.choice(ready)
            process.kill()
            killed.append(now)
            simulation.world.after(chance.choice((0.01, 1.0)), partial(simulation.start_again, process.name))
        simulation.world.after(0.002, watch)

    simulation.world.after(0.001, watch)


def _begins_one(simulation: Simulation, process: Process) -> bool:
    """Whether an innocent request runs there and has no token yet."""
    return any(
        inflight.answer is not None and not inflight.answer.index and inflight.key not in simulation.deadly
        for inflight in _running(process)
    )


def _fails_one(simulation: Simulation, process: Process) -> bool:
    """Whether a request has failed there, or is tried again after a kill. The first kill makes requests replayed."""
    has_killed = len(simulation.processes) > len(simulation.alive)
    return any(
        (inflight in FAILED or inflight.attempts.lost) and (inflight.attempts.is_recorded or not has_killed)
        for inflight in _running(process)
    )


def _running(process: Process) -> list[InFlight]:
    return [
        inflight
        for partition in process.partitions
        if partition.state is State.OWNED
        for inflight in partition.ownership.inflight_requests.values()
    ]
