"""Storms of the words of `while_busy` among answers in which features of the policy take part: tools over Kafka, a
guard, the response cache, `best_of`, a fallback to another model, and any of them together.

Each worker decides otherwise: judges and the analyzer never find the same twice, each has routes of its own, and a
model that fails does so in one process. So an answer that a later request ends and a successor decides anew shows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.faults import FAULTS, Fault, expire_log, inflict_some, suspend
from tests.simulation.load import Load
from tests.simulation.scenario import Conditions, Simulation
from tests.simulation.sleeping import busy_storm
from tests.simulation.storms import guarded_storm, killed_as_it_decides, routed_storm

WORDS = ("steer", "reject", "interrupt", "rollback")
_DAY_S = 86_400.0
_FAULTS: tuple[Fault, ...] = (*FAULTS, suspend, expire_log)


def busy_tools_storm(seed: int) -> Simulation:
    """Most answers call tools over Kafka, and some sleep meanwhile."""
    return _storm(seed, "tools")


def busy_guard_storm(seed: int) -> Simulation:
    """Judges hold back a part of each answer and block some; a third of the seeds hide private values, too."""
    return _storm(seed, "guard")


def busy_cache_storm(seed: int) -> Simulation:
    """Most questions are the same in two conversations, so that answers are repeated."""
    return _storm(seed, "cache")


def busy_best_of_storm(seed: int) -> Simulation:
    """Most answers are the best of several, of which readers have nothing until all are there."""
    return _storm(seed, "best_of")


def busy_fallback_storm(seed: int) -> Simulation:
    """Models fail in most answers, once or always, and another one goes on."""
    return _storm(seed, "fallback")


def busy_features_storm(seed: int) -> Simulation:
    """Each feature by chance."""
    chance = random.Random(f"features {seed}")
    features = ("tools", "guard", "cache", "best_of", "fallback")
    return _storm(seed, *(one for one in features if chance.random() < 0.5))


def deciding_storm(seed: int) -> Simulation:
    """An owner dies as soon as an answer's plan says that it has ended, or goes on otherwise."""
    kinds: tuple[tuple[Callable[[int], Simulation], str], ...] = (
        (routed_storm, "from_index"),
        (busy_fallback_storm, "from_index"),
        (guarded_storm, "filtered"),
        (busy_guard_storm, "filtered"),
        (busy_best_of_storm, "chosen"),
        (busy_storm, "rolled_back"),
    )
    make, field = kinds[seed % len(kinds)]
    return killed_as_it_decides(make, field)(seed)


def _storm(seed: int, *features: str, word: str | None = None) -> Simulation:
    """`word`: no other one is among the requests."""
    chance = random.Random(f"busy {' '.join(features)} {seed}")
    sleeps = "tools" in features and chance.random() < 0.3
    conditions = Conditions(
        ttl_s=30 * _DAY_S,
        sweep_s=chance.choice((0.3, 3.0)),
        skew=chance.random() < 0.3,
        sleeps_after_s=chance.choice((0.4, 1.5)) if sleeps else None,
        rounds=32 if word == "reject" else chance.choice((1, 2, 32)),  # as in rejecting_storm
        moderated="guard" in features,
        pii="mask" if "guard" in features and chance.random() < 0.3 else "off",
        routed="cache" in features or "fallback" in features,
    )
    load = Load(
        requests=6 + seed % 8,
        users=chance.choice((1, 2)),
        tokens=chance.choice((2, 8)),
        over_s=chance.choice((1.0, 4.0)),
        cancels=0.05,
        repeats=0.2,
        deadlines=chance.choice((0.0, 0.1)),
        erases=chance.choice((0.0, 0.0, 0.2)),
        deadly=chance.choice((0.0, 0.0, 0.1)),
        busy=0.6,
        busy_words=(word,) if word else chance.choice(((chance.choice(WORDS),), WORDS)),
        busy_lasts=word == "reject",
    )
    if "tools" in features:
        load = replace(load, tools=0.7, tools_late_s=(0.0, 0.5, 1.5))
    if "cache" in features:
        load = replace(load, same=0.6, same_in=2)
    if "best_of" in features:
        load = replace(load, best_of=0.7, failing=0.3)
    if "fallback" in features:
        load = replace(load, failing=0.7)
    simulation = Simulation(seed, workers=1 + seed % 3, partitions=1 + seed // 3 % 2, load=load, conditions=conditions)
    inflict_some(simulation, _FAULTS)
    return simulation
